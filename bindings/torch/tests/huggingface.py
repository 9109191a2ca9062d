"""huggingface.py BACKEND: a rank: Accelerate and Hugging Face's Trainer, with a tiny model that is made here. Ends with
"rank r ok", and what the Trainer has made of the model, to be compared with that of another backend."""
import os
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true", "TRANSFORMERS_VERBOSITY": "error"}
# pylint: disable=wrong-import-position
import torch
import torch.distributed as dist
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
dist.init_process_group(f"cpu:{sys.argv[1]}")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
ROWS = torch.randint(0, 32, (16, 8), generator=torch.Generator().manual_seed(5))


def tiny():
    torch.manual_seed(1)
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0,
                                      embd_pdrop=0, attn_pdrop=0))


def alone(batch):
    """What one process makes of whole batches, in two steps of SGD."""
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in ROWS.split(batch)[:2]:
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
    return model.state_dict()


def near(model, wanted):
    for name, value in model.state_dict().items():
        assert torch.allclose(value, wanted[name], atol=1e-5), name


def test_accelerate():
    accelerator = Accelerator()
    assert (accelerator.num_processes, accelerator.process_index) == (SIZE, RANK)
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(ROWS[:4 * SIZE], batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for rows in loader:
        optimizer.zero_grad()
        accelerator.backward(model(input_ids=rows, labels=rows).loss)
        optimizer.step()
        steps += 1
    assert steps == 2
    near(accelerator.unwrap_model(model), alone(2 * SIZE))
    gathered = accelerator.gather_for_metrics(torch.tensor([RANK]))
    assert gathered.tolist() == list(range(SIZE)), gathered


def test_trainer():
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, use_cpu=True, per_device_train_batch_size=2, max_steps=2,
                                      learning_rate=0.1, optim="sgd", lr_scheduler_type="constant", report_to=[],
                                      save_strategy="no", max_grad_norm=0.0, disable_tqdm=True,
                                      data_seed=0)
        assert arguments.world_size == SIZE
        data = [{"input_ids": row, "labels": row} for row in ROWS[:4 * SIZE]]
        trainer = Trainer(model=tiny(), args=arguments, train_dataset=data)
        trainer.train()
        return sum(p.square().sum().item() for p in trainer.accelerator.unwrap_model(trainer.model).parameters())


test_accelerate()
print(f"rank {RANK} ok: {test_trainer():.4f}", flush=True)
dist.destroy_process_group()
