"""Losses, quantizers and masks equal their second version in NumPy."""
import unittest

import numpy as np
import reference
import torch
from small import BLOCK, CONTEXT, MASK, rows

from bitnet.ternary import bit_linear, keep_largest
from distill import haar, layout, losses
from distill.model import States


def leaf(*shape, seed=1):
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.requires_grad_(True)


class Losses(unittest.TestCase):
    def same(self, loss, inputs, want, gradient):
        loss.backward()
        self.assertAlmostEqual(float(loss), float(want), places=5)
        np.testing.assert_allclose(inputs.grad.numpy(), gradient, atol=1e-6)

    def test_cross_entropy(self):
        logits, targets = leaf(6, 9), torch.tensor([0, 3, 8, 1, 1, 5])
        weight = torch.tensor([1, 1, 2.5, 1, 0, 1], dtype=torch.float64)
        found = reference.cross_entropy(logits.detach().numpy(), targets.numpy(), weight.numpy())
        self.same(losses.cross_entropy(logits, targets, weight), logits, *found)

    def test_logits_of_a_teacher_at_a_temperature(self):
        student, teacher = leaf(5, 11), leaf(5, 11, seed=2).detach()
        for tau in (1.0, 5.0):
            student.grad = None
            found = reference.divergence(student.detach().numpy(), teacher.numpy(), tau)
            self.same(losses.divergence(student, teacher, torch.ones(5), tau), student, *found)

    def test_the_teachers_most_likely_tokens(self):
        student, teacher = leaf(5, 11), leaf(5, 11, seed=2).detach()
        found = reference.top(student.detach().numpy(), teacher.numpy(), 2.0, 4)
        self.same(losses.top(student, teacher, torch.ones(5), 2.0, 4), student, *found)

    def test_relations_of_queries_keys_and_values(self):
        together = rows().same_sample()
        ours = [leaf(2, CONTEXT, 16, seed=seed) for seed in (1, 2, 3)]
        theirs = [leaf(2, CONTEXT, 24, seed=seed).detach() for seed in (4, 5, 6)]
        found = [reference.relation(a.detach().numpy(), b.numpy(), together.numpy(), 4)
                 for a, b in zip(ours, theirs)]
        loss = losses.relation(States(*ours), States(*theirs), together, 4)
        loss.backward()
        self.assertAlmostEqual(float(loss), sum(one for one, _ in found), places=5)
        for state, (_, gradient) in zip(ours, found):
            np.testing.assert_allclose(state.grad.numpy(), gradient, atol=1e-6)


class Quantizers(unittest.TestCase):
    def test_matrices_on_the_way_to_ternary_and_their_gradients(self):
        x, weight, above = leaf(7, 16), leaf(12, 16, seed=2), leaf(7, 12, seed=3).detach()
        for strength in (0.0, 0.25, 1.0):
            x.grad = weight.grad = None
            out = bit_linear(x, weight, strength, torch.float64)
            out.backward(above)
            want = reference.linear(x.detach().numpy(), weight.detach().numpy(), strength, above.numpy())
            for ours, theirs in zip((out.detach(), x.grad, weight.grad), want):
                np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-9)

    def test_sparse_activations_keep_the_largest_and_pass_all_gradients(self):
        x = torch.tensor([[1.0, -4, 2, 0.5, -4, 3, 0, 0.25]], requires_grad=True)
        kept = keep_largest(x.detach(), 0.25)
        self.assertEqual(kept[0].nonzero().flatten().tolist(), [1, 4])
        tied = keep_largest(torch.tensor([[2.0, -2, 2, 1]]), 0.5)
        self.assertEqual(tied[0].tolist(), [True, True, True, False], "ties of the last one stay")
        blocks = keep_largest(x.detach(), 0.5, block=4)
        self.assertEqual(blocks[0].tolist(), [False, True, True, False, True, True, False, False])
        weight = torch.eye(8).requires_grad_(True)
        bit_linear(x, weight, 1.0, torch.float32, keep=0.25).sum().backward()
        self.assertTrue((x.grad.abs() > 0).all(), "the gradient is not masked")

    def test_haar_is_its_own_inverse_and_ternary_in_its_basis(self):
        weight = leaf(6, 16).detach()
        np.testing.assert_allclose(haar.inverse(*haar.forward(weight)).numpy(), weight.numpy(), atol=1e-12)
        found = haar.haar_ternary(weight)
        np.testing.assert_allclose(found.numpy(), reference.haar_ternary(weight.numpy()), atol=1e-9)
        self.assertLessEqual(len({round(float(v), 9) for v in found.flatten()}), 9)

    def test_the_published_haar_inverse_loses_a_twenty_thousandth(self):
        weight = leaf(6, 16).detach()
        low, high = haar.forward(weight)
        published = torch.stack([low + high, low - high], -1).flatten(-2) * 0.70703125
        error = float((published - weight).norm() / weight.norm())
        self.assertAlmostEqual(error, 1 - 0.70703125 * 2**0.5, places=6)
        self.assertGreater(error, 1e-4 / 2)


class Layout(unittest.TestCase):
    def test_complementary_masks_cover_each_token_once(self):
        which = rows()
        (first, second), rates = layout.complementary_views(which, BLOCK, torch.Generator().manual_seed(3))
        self.assertTrue(torch.equal(first.int() + second.int(), which.counts.int()))
        self.assertTrue(bool(first.any()) and bool(second.any()))
        self.assertTrue(torch.allclose(rates[0] + rates[1], torch.ones(2, CONTEXT)))
        for shift in (0, 1):
            batch = layout.noisy(which, [first, second], rates, MASK, BLOCK, True, shift)
            self.assertEqual(sorted(batch.masked.source.tolist()),
                             which.counts.flatten().nonzero().flatten().tolist())

    def test_rows_see_what_the_contract_says(self):
        which = rows(1)
        for clean_causal in (True, False):
            mask = layout.visible(which, BLOCK, 2, clean_causal)[0]
            named = [(int(which.sample[0, i]), int(which.position[0, i]), view)
                     for view in (0, 1, None) for i in range(CONTEXT)]
            for query, row in zip(named, mask.tolist()):
                want = [reference.sees(query, key, BLOCK, clean_causal) for key in named]
                self.assertEqual(row, want, query)

    def test_masked_tokens_are_masked_predicted_and_weighed(self):
        which = rows(1)
        masks, rates = layout.complementary_views(which, BLOCK, torch.Generator().manual_seed(3))
        for shift in (0, 1):
            batch = layout.noisy(which, masks, rates, MASK, BLOCK, True, shift, inverse=True)
            flat, targets = batch.inputs.tokens.flatten(), batch.masked
            self.assertTrue((flat[targets.rows + shift] == MASK).all())
            self.assertTrue(torch.equal(targets.tokens, which.tokens.flatten()[targets.source]))
            self.assertEqual((flat[:2 * CONTEXT] == MASK).sum(), len(targets.tokens) + 2 * 8)
            self.assertTrue(torch.equal(batch.inputs.positions[0, :CONTEXT], which.position[0]))
            rate = torch.cat([rates[0][masks[0]], rates[1][masks[1]]])
            np.testing.assert_allclose(targets.weight.numpy(), 1 / ((1 - 1e-3) * rate + 1e-3), rtol=1e-5)

    def test_weights_by_rate_differ_from_plain_ones(self):
        """Fast-dLLM v2 has no weight; with 1 / p the losses of one batch differ."""
        which, g = rows(), torch.Generator().manual_seed(3)
        masks, rates = layout.complementary_views(which, BLOCK, g)
        plain, weighed = (layout.noisy(which, masks, rates, MASK, BLOCK, True, 1, inverse).masked
                          for inverse in (False, True))
        said = torch.randn(len(plain.rows), 48, generator=g)
        one = float(losses.cross_entropy(said, plain.tokens, plain.weight))
        other = float(losses.cross_entropy(said, weighed.tokens, weighed.weight))
        self.assertGreater(other / one, 1.2)


if __name__ == "__main__":
    unittest.main()
