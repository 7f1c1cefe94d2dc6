"""From a checkpoint to a ternary block-diffusion model: `python -m distill` in `models`."""
