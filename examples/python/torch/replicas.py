"""torchft keeps replicas of a model alike, while some of them come and go:    python replicas.py

Three processes are a replica each. The last one ends itself in the middle of step 20; it is started again, and gets
the model and the optimizer's state from another one. With a smaller LEAST the others would go on without it until it
is back. Needs torchft."""
import multiprocessing
import os
import sys
from typing import Any

import torch
import torchft
from torchft.coordination import LighthouseServer
from tutti.torchft import ProcessGroupTutti

import digits

REPLICAS, LEAST = 3, 3


def train(replica: int, life: int, lighthouse: str) -> None:
    store = torch.distributed.TCPStore(  # type: ignore[attr-defined]  # torch names it in its manual, not in its types
        "localhost", 0, is_master=True, wait_for_workers=False)
    model = digits.network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        print(f"replica {replica}: gets its state from another one", flush=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    manager = torchft.Manager(
        pg=ProcessGroupTutti(), min_replica_size=LEAST, load_state_dict=load, state_dict=state, use_async_quorum=False,
        init_sync=False, replica_id=f"replica{replica}", lighthouse_addr=lighthouse, store_addr="localhost",
        store_port=store.port, rank=0, world_size=1)
    steps = torchft.Optimizer(manager, optimizer)
    batches = list(digits.batches())
    while manager.current_step() < len(batches):
        steps.zero_grad()  # here replicas come and go
        if manager.current_step() == len(batches):
            break
        pictures, labels = batches[manager.current_step()]
        mine = slice(manager.participating_rank(), None, manager.num_participants())
        loss = torch.nn.functional.cross_entropy(model(pictures[mine]), labels[mine])
        if manager.current_step() == 20 and replica == REPLICAS - 1 and life == 0:
            os._exit(1)
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        for work in [manager.allreduce(gradient) for gradient in gradients]:  # the mean of all replicas'
            work.wait()
        steps.step()  # of all replicas, or of none
    print(f"replica {replica}: {manager.current_step()} steps, loss {digits.loss_of_all(model):.4f}", flush=True)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    start = multiprocessing.get_context("spawn")
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=LEAST)
    replicas = []
    for number in range(REPLICAS):
        replicas.append(start.Process(target=train, args=(number, 0, lighthouse.address())))
        replicas[-1].start()
    replicas[-1].join()
    print(f"replica {REPLICAS - 1} is lost, and comes again", flush=True)
    replicas[-1] = start.Process(target=train, args=(REPLICAS - 1, 1, lighthouse.address()))
    replicas[-1].start()
    for process in replicas:
        process.join()
    lighthouse.shutdown()
    sys.exit(any(process.exitcode for process in replicas))
