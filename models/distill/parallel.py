"""One process, or several under `torchrun` whose parameters PyTorch's FSDP divides."""
import os
from dataclasses import dataclass

import torch


@dataclass
class Processes:
    """This process among all."""
    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        return self.rank == 0

    def divide(self, model):
        """Divides the parameters of a model among processes, layer by layer."""
        model.to(self.device)
        if self.count > 1:
            from torch.distributed.fsdp import fully_shard

            for layer in model.model.layers:
                fully_shard(layer)
            fully_shard(model)
        return model

    def gathered(self, model, optimizers) -> tuple[dict, list]:
        """Returns the whole states of a model and its optimizers, on the first process."""
        if self.count == 1:
            return model.state_dict(), [o.state_dict() for o in optimizers]
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        pairs = [get_state_dict(model, o, options=whole) for o in optimizers]
        return pairs[0][0], [state for _, state in pairs]

    def restore(self, model, optimizers, weights: dict, states: list):
        """Puts whole states back."""
        if self.count == 1:
            model.load_state_dict(weights)
            for optimizer, state in zip(optimizers, states):
                optimizer.load_state_dict(state)
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

        whole = StateDictOptions(full_state_dict=True)
        for optimizer, state in zip(optimizers, states):
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state,
                           options=whole)

    def any(self, flag: bool) -> bool:
        """Returns true if any process says so."""
        if self.count == 1:
            return flag
        said = torch.tensor(int(flag), device=self.device)
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MAX)
        return bool(said)

    def wait(self):
        """Waits for all processes."""
        self.any(False)

    def mean(self, value: torch.Tensor) -> float:
        """Returns the mean of a number over all processes."""
        if self.count == 1:
            return float(value)
        value = value.detach().clone()
        torch.distributed.all_reduce(value)
        return float(value) / self.count


def start() -> Processes:
    """Joins the processes that `torchrun` started, if it did."""
    count, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    cuda = torch.cuda.is_available()
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
    if count > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
    return Processes(rank, count, device)
