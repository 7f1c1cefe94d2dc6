"""From a checkpoint to a ternary block-diffusion model. Run in `models`:

    python -m distill run distill/recipes/smollm2-135m.yaml

Commands: `run` does all of a recipe. `prepare` makes teacher, tokenizer and text. `pretrain`,
`ternarize`, `distill`, `diffuse` and `tcs` train the recipe's stages with that objective. `export`
writes a directory and a packed file, `evaluate` a report, `plot` the curves. An interrupted command
goes on where it was.
"""
import argparse
import sys
from dataclasses import replace
from pathlib import Path

from . import parallel, progress, trainer
from .line import Line, shrunken
from .recipe import OBJECTIVES, load


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m distill", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "prepare", *OBJECTIVES, "export", "evaluate", "plot"])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--work", type=Path, help="default: distill/work/NAME")
    parser.add_argument("--wf-run", default="../target/release/wf-run", help="the program")
    parser.add_argument("--steps", type=int, default=0,
                        help="stop each stage after so many more steps; the same command goes on")
    parser.add_argument("--q-sparse", type=float, help="share of activations to keep (Q-Sparse)")
    parser.add_argument("--haar", action="store_true", default=None,
                        help="ternary weights in the Haar basis; the export is dense, and says so")
    parser.add_argument("--dry-run", action="store_true",
                        help="three steps a stage, on a small model of random weights")
    return parser.parse_args()


def main():
    args = arguments()
    recipe = load(args.recipe)
    options = {"q_sparse": args.q_sparse, "haar": args.haar}
    recipe = replace(recipe, **{key: value for key, value in options.items() if value is not None})
    recipe.check(str(args.recipe))
    name = recipe.name
    if args.dry_run:
        recipe, name = shrunken(recipe), f"{name}-dry"
    line = Line(recipe, args.work or Path("distill/work") / name, args.wf_run, parallel.start())
    if args.command == "plot":
        curves = [line.work / stage.name / trainer.CURVE for stage in recipe.stages]
        progress.plot([path for path in curves if path.exists()], line.work / "curves.svg")
        return
    line.prepare()
    for number, stage in enumerate(recipe.stages):
        if args.command in ("run", stage.objective) and not line.train(number, args.steps):
            sys.exit(0 if args.steps else 130)
    if not line.processes.first:
        return
    if args.command in ("run", "export"):
        line.export()
    if args.command in ("run", "evaluate"):
        print(line.evaluate())
    if args.command == "run":
        curves = [line.work / stage.name / trainer.CURVE for stage in recipe.stages]
        progress.plot(curves, line.work / "curves.svg")


if __name__ == "__main__":
    main()
