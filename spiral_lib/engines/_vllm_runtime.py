"""One vLLM in this process, shared by the engines of all checkpoints of one shape.

Several copies of the weights would not fit beside each other and their caches, so they take turns: the engine that
holds the model keeps it while it has requests, then the one with the most waiting gets it, by a reload in place.
Matches that wait for an opponent meanwhile gather, so a reload serves all of them at once.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spiral_lib.config import RunConfig
from spiral_lib.engines import _vllm_canary as canary
from spiral_lib.errors import EngineError
from spiral_lib.types import Request

if TYPE_CHECKING:
    from spiral_lib.engines.vllm import VllmEngine

log = logging.getLogger(__name__)

_KEPT_REFERENCES = 32
_SHAPELESS = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
_open: dict[tuple[Any, ...], Runtime] = {}


def join(engine: VllmEngine, config: RunConfig, window: int) -> Runtime:
    """Return the runtime for an engine's checkpoint, started if there is none of that shape; ``leave`` it later."""
    shape = json.loads((engine.folder / "config.json").read_text(encoding="utf-8"))
    for name in _SHAPELESS:
        shape.pop(name, None)
    key = (json.dumps(shape, sort_keys=True), config.model.dtype, window, config.rollout.concurrency, config.engine)
    runtime = _open.get(key)
    if runtime is None:
        runtime = _open[key] = Runtime(key, engine, config, window)
    runtime.engines.append(engine)
    return runtime


class Runtime:
    """vLLM with the weights of one checkpoint at a time, and the requests that it works on."""

    def __init__(self, key: tuple[Any, ...], engine: VllmEngine, config: RunConfig, window: int) -> None:
        self.engines: list[VllmEngine] = []
        self.num_loads = 0
        self._key, self._dtype = key, config.model.dtype
        self._ids = canary.sequence(engine.folder, window)
        self._references: dict[str, canary.Reference] = {}
        self._live: dict[str, tuple[VllmEngine, Request]] = {}
        self._next_id = 0
        self._llm: Any = _start(engine.folder, config, window)
        self._holder: VllmEngine | None = engine
        self._loaded = engine.digest
        self._prove(engine)

    @property
    def idle(self) -> bool:
        return not self._live

    def leave(self, engine: VllmEngine) -> None:
        """Forget an engine and its requests; the last one ends vLLM and frees its memory."""
        for number in [n for n, (owner, _) in self._live.items() if owner is engine]:
            self._llm.abort_request([number])
            del self._live[number]
        self.engines.remove(engine)
        self._holder = None if self._holder is engine else self._holder
        if not self.engines:
            del _open[self._key]
            _stop(self._llm)
            self._llm = None

    def advance(self) -> None:
        """Feed the model's holder, or hand the model over when it has nothing left; then make one step."""
        if self.idle:
            if not any(engine.waiting for engine in self.engines):
                return
            if self._holder is None or not self._holder.waiting:
                self.give(max(self.engines, key=lambda engine: len(engine.waiting)))
        holder = self._holder
        assert holder is not None
        while holder.waiting:
            self._add(holder, holder.waiting.popleft())
        for output in self._step():
            engine, request = self._live.pop(output.request_id)
            ids, logprobs = sampled(output)
            engine.finish(request, ids, logprobs)

    def give(self, engine: VllmEngine) -> None:
        """Let the model hold an engine's weights. Raises EngineError while it works on another's requests."""
        if self._holder is not engine and not self.idle:
            raise EngineError(f"vllm works on {len(self._live)} requests of another checkpoint; finish them first")
        self._holder = engine
        if self._loaded == engine.digest:
            return
        start = time.monotonic()
        self._loaded = ""  # a reload that fails leaves nothing that could be taken for weights
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(engine.folder)})
        # Blocks computed with the old weights would be read as if they were the new ones'.
        if not self._llm.reset_prefix_cache():
            raise EngineError("vllm cannot empty its prefix cache; set engine.prefix_caching=false")
        self._prove(engine)
        self._loaded = engine.digest
        self.num_loads += 1
        log.debug("weights %s loaded and proven in %.1f s", engine.digest[:12], time.monotonic() - start)

    def score(self, engine: VllmEngine, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Return the teacher-forced log-probs of responses; see ``VllmEngine.score``."""
        if not self.idle:
            raise EngineError(f"vllm works on {len(self._live)} requests; score when they are finished")
        self.give(engine)
        outputs = self._run([((*p, *r), _scoring()) for p, r in pairs])
        return [scores(output)[-len(r) :] for output, (_, r) in zip(outputs, pairs, strict=True)]

    def _add(self, engine: VllmEngine, request: Request) -> None:
        limit = min(request.max_new_tokens, engine.window - len(request.prompt_ids))
        params = _sampling(request.seed, request.temperature, limit, engine.stop_ids)
        self._live[self._submit(request.prompt_ids, params)] = (engine, request)

    def _submit(self, ids: Sequence[int], params: Any) -> str:
        self._next_id += 1
        number = str(self._next_id)
        self._llm.add_request(number, {"prompt_token_ids": list(ids)}, params)
        return number

    def _run(self, asked: Sequence[tuple[Sequence[int], Any]]) -> list[Any]:
        """Return the outputs of requests of our own, in order; nothing else may be live."""
        numbers = [self._submit(ids, params) for ids, params in asked]
        done: dict[str, Any] = {}
        while len(done) < len(numbers):
            done |= {output.request_id: output for output in self._step()}
        return [done[number] for number in numbers]

    def _step(self) -> list[Any]:
        """Return what finishes in one step; the process-wide generator, which vLLM draws from, stays as it was."""
        import torch

        state = torch.get_rng_state()
        try:
            outputs: list[Any] = self._llm.step()
        finally:
            torch.set_rng_state(state)
        return outputs

    def _prove(self, engine: VllmEngine) -> None:
        expected = self._references.pop(engine.digest, None)
        if expected is None:
            expected = canary.reference(engine.folder, self._dtype, self._ids)
        self._references[engine.digest] = expected
        if len(self._references) > _KEPT_REFERENCES:
            del self._references[next(iter(self._references))]
        asked: list[tuple[Sequence[int], Any]] = [(self._ids, _scoring())]
        asked += [(p, _sampling(i, canary.TEMPERATURE, 1, ())) for i, p in enumerate(canary.prefixes(self._ids))]
        first, *others = self._run(asked)
        drawn = [(ids[0], logprobs[0]) for ids, logprobs in map(sampled, others)]
        canary.check(expected, scores(first), drawn, dtype=self._dtype, what=f"'{engine.folder}'")


def sampled(output: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the ids of a finished request and their log-probs."""
    made = output.outputs[0]
    ids = tuple(made.token_ids)
    return ids, tuple(float(at[i].logprob) for i, at in zip(ids, made.logprobs, strict=True))


def scores(output: Any) -> list[float]:
    """Return the log-probs of a prompt's ids but the first."""
    pairs = zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True)
    return [float(at[i].logprob) for i, at in pairs]


def _sampling(seed: int, temperature: float, limit: int, stop_ids: Sequence[int]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=temperature,
        # Cut-off tails would be renormalised away in the log-probs, which the learner could not reproduce.
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        seed=seed,
        max_tokens=limit,
        stop_token_ids=list(stop_ids),
        ignore_eos=True,  # the renderer's stop ids are all there are
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _scoring() -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=1.0,
        max_tokens=1,
        logprobs=0,
        prompt_logprobs=0,
        detokenize=False,
        ignore_eos=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _start(folder: Path, config: RunConfig, window: int) -> Any:
    """Return a started LLMEngine. Raises EngineError where vllm is not installed or does not start."""
    import torch

    on_gpu = torch.cuda.is_available()
    with _process_as_before():
        os.environ.update(
            VLLM_ENABLE_V1_MULTIPROCESSING="0",  # add_request and step in this process
            VLLM_NO_USAGE_STATS="1",
            VLLM_CPU_KVCACHE_SPACE=str(config.engine.cpu_cache_gib),
            VLLM_CPU_OMP_THREADS_BIND="nobind",
        )
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        try:
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise EngineError(
                f"engine vllm cannot be imported ({error}); without a GPU 'make setup-vllm' installs it in an "
                "environment of its own, or use rollout.engine=hf"
            ) from error
        try:
            args = EngineArgs(
                model=str(folder),
                skip_tokenizer_init=True,
                dtype=config.model.dtype,
                seed=0,
                max_model_len=window,
                max_num_seqs=config.rollout.concurrency,
                max_num_batched_tokens=max(window, 8192),
                # A request with a seed of its own cannot be cut into chunks: its generator cannot be wound back.
                enable_chunked_prefill=False,
                enable_prefix_caching=config.engine.prefix_caching,
                enforce_eager=config.engine.eager or not on_gpu,
                tensor_parallel_size=config.engine.tensor_parallel,
                gpu_memory_utilization=config.engine.gpu_memory,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",  # nothing of the checkpoint's own sampling settings
                disable_log_stats=True,
            )
            return LLMEngine.from_engine_args(args)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"engine vllm does not start on '{folder}': {error}") from error


@contextlib.contextmanager
def _process_as_before() -> Iterator[None]:
    """Give back what vLLM's start changes for the whole process: environment, generators, the setter of threads."""
    import numpy as np
    import torch

    environment, state, numpy_state = dict(os.environ), random.getstate(), np.random.get_state()
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)
            torch.set_num_threads = set_threads
            torch.set_num_threads(threads)
            for name in set(os.environ) - set(environment):
                if not name.startswith("VLLM_"):
                    del os.environ[name]
            os.environ.update({n: v for n, v in environment.items() if not n.startswith("VLLM_")})


def _stop(llm: Any) -> None:
    """End vLLM and free its memory, weights and cache included."""
    import torch
    from vllm.distributed.parallel_state import destroy_distributed_environment, destroy_model_parallel

    llm.engine_core.shutdown()
    destroy_model_parallel()
    destroy_distributed_environment()
    del llm
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
