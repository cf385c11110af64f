"""Token generation by vLLM inside this process, driven step by step like every engine; see ``_vllm_runtime``.

Completions are keyed by ``request.seed``, but through vLLM's generators: they differ from engine hf's, and in bfloat16
they can depend on what else is in the batch. What was sampled is recorded; replay the record, do not regenerate it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spiral_lib import checkpoints
from spiral_lib.config import RunConfig
from spiral_lib.engines import _vllm_runtime
from spiral_lib.errors import EngineError
from spiral_lib.prompts import Renderer
from spiral_lib.types import Completion, Request

if TYPE_CHECKING:
    import torch

_WEIGHTS = (".safetensors", ".safetensors.index.json")


class VllmEngine:
    """Engine over a checkpoint folder, with ``rollout.concurrency`` slots and a window of ``model.context_tokens``.

    Engines over checkpoints of one shape share one vLLM. A temperature of 0 takes the most likely token and reports
    log-probabilities at temperature 1.
    """

    name = "vllm"

    def __init__(self, checkpoint: Path, config: RunConfig) -> None:
        checkpoints.refuse_unsafe(checkpoint)
        renderer = Renderer(checkpoints.load_tokenizer(checkpoint), config.prompt)
        self._scratch = tempfile.TemporaryDirectory(prefix="spiral-vllm-")
        self.folder = _with_head(checkpoint, Path(self._scratch.name))
        self.digest = _digest(checkpoint)
        self.window = min(config.model.context_tokens, _model_window(checkpoint))
        self.stop_ids = renderer.stop_ids
        self.waiting: deque[Request] = deque()
        self._decode = renderer.decode
        self._checkpoint = checkpoint
        self._done: list[tuple[int, Completion]] = []
        self._num_asked = 0
        self._num_updates = 0
        self._runtime: _vllm_runtime.Runtime | None = _vllm_runtime.join(self, config, self.window)

    @property
    def num_live(self) -> int:
        """Requests submitted and not yet returned."""
        return self._num_asked

    def submit(self, request: Request) -> None:
        """Queue a request. A prompt that fills the window is returned by the next step, without tokens."""
        if not request.prompt_ids or request.max_new_tokens < 1:
            raise EngineError(f"request {request.id} needs a prompt and max_new_tokens of at least 1")
        self._num_asked += 1
        if len(request.prompt_ids) >= self.window:
            self._done.append((request.id, self._completion(request, (), ())))
            return
        self.waiting.append(request)

    def step(self) -> list[tuple[int, Completion]]:
        """Advance the requests that the model works on, another checkpoint's perhaps, and return our finished ones."""
        if not self._done:
            self._open().advance()
        done, self._done = self._done, []
        self._num_asked -= len(done)
        return done

    def finish(self, request: Request, ids: tuple[int, ...], logprobs: tuple[float, ...]) -> None:
        """Take what the model sampled for one of our requests."""
        self._done.append((request.id, self._completion(request, ids, logprobs)))

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Return teacher-forced log-probabilities (nats, temperature 1) of each response after its prompt, in order.

        Prompt and response have to leave one position of the window free.
        """
        for prompt, response in pairs:
            if not prompt or not response or len(prompt) + len(response) >= self.window:
                raise EngineError(
                    f"cannot score {len(prompt)} + {len(response)} ids: both need at least one, "
                    f"together fewer than the window's {self.window}"
                )
        return self._open().score(self, pairs)

    def load_weights(self, state_dict: Mapping[str, torch.Tensor], digest: str) -> None:
        """Swap the weights in place, through a folder that vLLM reloads, and prove them.

        Raises EngineError while requests are live, or where vLLM does not come to hold these weights.
        """
        if self.num_live:
            raise EngineError(f"weights cannot be swapped while {self.num_live} requests are live; finish them first")
        runtime, old = self._open(), self.folder
        self._num_updates += 1
        self.folder = _written(state_dict, self._checkpoint, Path(self._scratch.name) / f"update-{self._num_updates}")
        self.digest = digest
        if runtime.idle:
            runtime.give(self)
        if old.parent == self.folder.parent:
            shutil.rmtree(old)

    def close(self) -> None:
        """Forget all requests; the last engine of its shape frees vLLM's memory."""
        if self._runtime is not None:
            self._runtime.leave(self)
            self._scratch.cleanup()
        self._runtime = None
        self.waiting.clear()
        self._done, self._num_asked = [], 0

    def _open(self) -> _vllm_runtime.Runtime:
        if self._runtime is None:
            raise EngineError("the engine is closed; make a new one with engines.make")
        return self._runtime

    def _completion(self, request: Request, ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Completion:
        stopped = bool(ids) and ids[-1] in self.stop_ids
        used_up = len(ids) == request.max_new_tokens
        return Completion(
            prompt_ids=request.prompt_ids,
            response_ids=ids,
            logprobs=logprobs,
            text=self._decode(ids[:-1] if stopped else ids),
            finish_reason="stop" if stopped else "length" if used_up else "context",
        )


def _model_window(checkpoint: Path) -> int:
    content = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    for name in ("max_position_embeddings", "n_positions"):
        if name in content:
            return int(content[name])
    raise EngineError(f"cannot tell the window of '{checkpoint}': its config.json has no max_position_embeddings")


def _digest(checkpoint: Path) -> str:
    """Return the manifest's id, or for a folder without a manifest the hash of its files."""
    if (checkpoint / checkpoints.MANIFEST).is_file():
        return checkpoints.read_manifest(checkpoint).id
    return checkpoints.digest_folder(checkpoint)


def _with_head(checkpoint: Path, scratch: Path) -> Path:
    """Return the folder, or a copy whose weights name the head explicitly.

    A reload from files without ``lm_head.weight`` would keep the head of the checkpoint before.
    """
    from safetensors import safe_open

    files = sorted(checkpoint.glob("*.safetensors"))
    names: set[str] = set()
    for file in files:
        with safe_open(file, framework="pt") as opened:
            names |= set(opened.keys())
    if "lm_head.weight" in names or "model.embed_tokens.weight" not in names:
        return checkpoint
    return _written(checkpoints.load_model(checkpoint).state_dict(), checkpoint, scratch / "with-head")


def _written(state_dict: Mapping[str, torch.Tensor], like: Path, folder: Path) -> Path:
    """Write weights, and everything else as it is in the folder ``like``; return the new folder."""
    from safetensors.torch import save_file

    weights = {name: weight.detach().cpu() for name, weight in state_dict.items()}
    if "lm_head.weight" not in weights and "model.embed_tokens.weight" in weights:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    folder.mkdir()
    for file in like.iterdir():
        if file.is_file() and not file.name.endswith(_WEIGHTS) and file.name != checkpoints.MANIFEST:
            shutil.copyfile(file, folder / file.name)
    # Copies, because tensors that share storage are refused.
    save_file({n: w.contiguous().clone() for n, w in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


ENGINE = VllmEngine
