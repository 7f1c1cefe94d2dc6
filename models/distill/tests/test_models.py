"""The checks of a compact tool: what must hold whatever a model has learned."""
import unittest
from dataclasses import replace

import torch
from small import BLOCK, CONTEXT, MASK, SHAPES, changed, dense, logits, recipe, rows, student

from distill import layout, losses, objectives, trainer
from distill.recipe import Stage

DIFFUSE = Stage("diffuse", "diffuse", 4, batch=2, clean=1.0)
TCS = Stage("tcs", "tcs", 4, batch=2, clean=1.0, top=1.0, relation=1.0, heads=4, top_k=8, tau=2.0)


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def batch(which, seed=5, causal=True, shift=1):
    masks, rates = layout.complementary_views(which, BLOCK, generator(seed))
    return layout.noisy(which, masks, rates, MASK, BLOCK, causal, shift)


class Strength(unittest.TestCase):
    def test_at_0_a_student_has_the_logits_of_its_checkpoint(self):
        inputs = layout.causal(rows())
        for family in SHAPES:
            teacher = dense(family)
            want, found = logits(teacher, inputs), logits(student(teacher, strength=0.0), inputs)
            self.assertTrue(torch.equal(want, found), family)
            ternary = logits(student(teacher, strength=1.0), inputs)
            self.assertGreater(float((want - ternary).abs().max()), 0.1, "λ matters")

    def test_small_strengths_change_little_and_sub_norms_at_once_change_much(self):
        inputs, teacher = layout.causal(rows()), dense()
        want = logits(teacher, inputs)

        def far(**how):
            return float((logits(student(teacher, **how), inputs) - want).abs().max())

        self.assertLess(far(strength=1e-4), 1e-2)
        self.assertGreater(far(strength=1e-4, sub_norms="at once"), 0.1)

    def test_calibrated_sub_norms_start_near_the_identity(self):
        teacher, seen = dense(), {}
        model = student(teacher, strength=1.0)
        trainer.calibrate(model, rows())
        self.assertEqual(model.quantizer.strength, 1.0)
        model.quantizer.strength = 0.0
        norm = model.model.layers[0].mlp.ffn_sub_norm
        norm.register_forward_pre_hook(lambda module, x: seen.update(x=x[0]))
        logits(model, layout.causal(rows()))
        length = float(seen["x"].square().mean().sqrt())
        self.assertTrue(torch.allclose(norm.weight, torch.full_like(norm.weight, length), rtol=1e-4))


class Leakage(unittest.TestCase):
    def loss(self, model, which, source, masks, shift=1):
        """The loss of the masked tokens at some places of the rows."""
        full = layout.noisy(which, *masks, MASK, BLOCK, True, shift)
        said, _ = model(full.inputs.tokens, full.inputs.positions, full.inputs.mask, full.masked.rows)
        each = torch.nn.functional.cross_entropy(said, full.masked.tokens, reduction="none")
        chosen = source.flatten()[full.masked.source]
        self.assertGreater(int(chosen.sum()), 0)
        return each[chosen]

    @torch.no_grad()
    def test_the_loss_of_a_block_does_not_change_with_later_blocks(self):
        which, model = rows(), student(dense(), strength=1.0)
        masks = layout.complementary_views(which, BLOCK, generator())
        first = which.position < BLOCK
        later = changed(which, ~first & which.counts)
        for shift in (0, 1):
            self.assertTrue(torch.equal(self.loss(model, which, first, masks, shift),
                                        self.loss(model, later, first, masks, shift)))

    @torch.no_grad()
    def test_rows_do_not_change_with_the_tokens_that_are_masked(self):
        """One view alone: its masked tokens are nowhere in what its blocks see."""
        which, model = rows(), student(dense(), strength=1.0)
        (mask, _), (rate, _) = layout.complementary_views(which, BLOCK, generator())
        last = mask & (which.position >= BLOCK)  # the last block of each sample: nothing sees it clean
        other = changed(which, last)
        outs = []
        for each in (which, other):
            full = layout.noisy(each, [mask], [rate], MASK, BLOCK, True, 1)
            said, _ = model(full.inputs.tokens, full.inputs.positions, full.inputs.mask,
                            full.masked.rows)
            outs.append(said)
        self.assertTrue(torch.equal(*outs))

    @torch.no_grad()
    def test_views_and_samples_do_not_see_each_other(self):
        which, model = rows(), student(dense(), strength=1.0)
        full = batch(which)
        said = logits(model, full.inputs)
        tokens = full.inputs.tokens.clone()
        tokens[:, CONTEXT:2 * CONTEXT] = 3  # the second view
        other = logits(model, replace(full.inputs, tokens=tokens))
        self.assertTrue(torch.equal(said[:, :CONTEXT], other[:, :CONTEXT]))
        self.assertTrue(torch.equal(said[:, 2 * CONTEXT:], other[:, 2 * CONTEXT:]))
        changed_sample = changed(which, which.sample == 1)
        other = logits(model, batch(changed_sample).inputs)
        own = (which.sample == 0).repeat(1, 3)
        self.assertTrue(torch.equal(said[own], other[own]))

    @torch.no_grad()
    def test_what_is_visible_does_change_the_loss(self):
        which, model = rows(), student(dense(), strength=1.0)
        masks = layout.complementary_views(which, BLOCK, generator())
        second = which.position >= BLOCK
        other = changed(which, which.position < 3)  # the prompt
        self.assertFalse(torch.equal(self.loss(model, which, second, masks),
                                     self.loss(model, other, second, masks)))


class CleanHalf(unittest.TestCase):
    def test_its_loss_is_the_plain_autoregressive_one(self):
        for family in SHAPES:
            which, model = rows(), student(dense(family), strength=1.0)
            parts = objectives.parts(model, None, which, DIFFUSE, recipe(DIFFUSE), MASK, generator())
            inputs, targets = layout.causal(which), layout.next_tokens(which)
            said, _ = model(inputs.tokens, inputs.positions, inputs.mask, targets.rows)
            plain = losses.cross_entropy(said, targets.tokens, targets.weight)
            torch.testing.assert_close(parts["clean"], plain, rtol=1e-6, atol=1e-6)

    def test_one_shared_clean_half_is_as_good_as_one_for_each_view(self):
        which, model = rows(), student(dense(), strength=1.0)
        masks, rates = layout.complementary_views(which, BLOCK, generator())
        both, found = layout.noisy(which, masks, rates, MASK, BLOCK, True, 1), []
        for mask, rate in zip(masks, rates):
            one = layout.noisy(which, [mask], [rate], MASK, BLOCK, True, 1)
            found.append(model(one.inputs.tokens, one.inputs.positions, one.inputs.mask,
                               one.masked.rows)[0])
        said, _ = model(both.inputs.tokens, both.inputs.positions, both.inputs.mask, both.masked.rows)
        torch.testing.assert_close(said, torch.cat(found), rtol=1e-5, atol=1e-5)


class Gradients(unittest.TestCase):
    def test_they_reach_every_ternary_matrix_and_norm(self):
        distill = Stage("distill", "distill", 4, batch=2, logits=1.0, relation=1.0, heads=4)
        for family in SHAPES:
            for stage in (distill, DIFFUSE, TCS):
                for how in ({}, {"keep": 0.7}, {"haar": True}):
                    teacher = dense(family).eval()
                    model = student(teacher, strength=1.0, **how)
                    parts = objectives.parts(model, teacher, rows(), stage, recipe(stage), MASK,
                                             generator())
                    objectives.total(parts, stage).backward()
                    self.assertTrue(all(p.grad is None for p in teacher.parameters()))
                    for name, parameter in model.named_parameters():
                        self.assertIsNotNone(parameter.grad, name)
                        self.assertGreater(float(parameter.grad.abs().max()), 0, f"{family} {name}")

    def test_the_teacher_is_read_before_the_token_it_speaks_of(self):
        """With the teacher as its own student of strength 0, a clean, causal, unmasked input agrees."""
        teacher, which = dense().eval(), rows()
        targets = layout.next_tokens(which)
        said, _ = objectives.ask(teacher, which, targets.source, None)
        inputs = layout.causal(which)
        want = logits(teacher, inputs).flatten(0, 1)[targets.rows]
        self.assertTrue(torch.equal(said, want))
        nothing = losses.divergence(want, said, targets.weight, 5.0)
        self.assertLess(abs(float(nothing)), 1e-6)

    def test_losses_at_masked_tokens_are_those_of_what_a_noisy_half_cannot_see(self):
        teacher, which = dense().eval(), rows()
        stage = replace(TCS, ce=0.0, clean=0.0)
        same = student(teacher, strength=0.0)
        plain = objectives.parts(same, teacher, which, stage, recipe(stage), MASK, generator())
        self.assertGreater(float(plain["top"]), 1e-3, "a noisy half sees less than the teacher")
        self.assertGreater(float(plain["relation"]), 1e-6)
        nothing = layout.Rows(*vars(which).values())
        nothing.counts[:] = False
        parts = objectives.parts(same, teacher, nothing, stage, recipe(stage), MASK, generator())
        self.assertEqual(float(parts["top"]), 0, "no token counts")


if __name__ == "__main__":
    unittest.main()
