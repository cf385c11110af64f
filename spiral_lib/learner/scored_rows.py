"""The last layer's products only for positions whose hidden state is used.

A loss looks at few positions: those that predict a response token. All layers but the last need every position, for the
keys and values of the next; behind the attention of the last one the others lead nowhere. There the output projection
and the gated MLP take the chosen rows alone and leave 0 in the others: exact, in both directions.

Shape suffixes: B rows or 1, T tokens, R chosen positions, E hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor

_KEYWORD: Final = "scored_rows"


def prepare(model: Any) -> None:
    """Make the last layer heed ``keyword``; a model whose layers are built otherwise stays as it is."""
    layers = getattr(getattr(model, model.base_model_prefix, None), "layers", None)
    last: Any = layers[-1] if layers else None
    parts: list[Any] = [getattr(getattr(last, "self_attn", None), "o_proj", None), getattr(last, "mlp", None)]
    if parts[0] is None or not hasattr(parts[1], "down_proj") or hasattr(model, _KEYWORD):
        return
    model.scored_rows = True
    rows = _Rows()
    last.register_forward_pre_hook(rows.note, with_kwargs=True)
    last.register_forward_hook(rows.forget)
    for part in parts:
        part.register_forward_pre_hook(rows.take)
        part.register_forward_hook(rows.put_back)


def keyword(model: Any, where_R: Tensor) -> dict[str, Tensor]:
    """Return what to add to the inputs of a forward pass of which only the flat positions ``where_R`` are used.

    Each position stands in it once.
    """
    return {_KEYWORD: where_R} if hasattr(model, _KEYWORD) else {}


class _Rows:
    """The positions of the pass under way; noted by the layer, since activation checkpointing runs it again later."""

    def __init__(self) -> None:
        self._where_R: Tensor | None = None
        self._lines: tuple[int, int] = (0, 0)

    def note(self, _layer: Any, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._where_R = kwargs.get(_KEYWORD)

    def forget(self, _layer: Any, _args: tuple[Any, ...], _out: Any) -> None:
        self._where_R = None

    def take(self, _part: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if self._where_R is None:
            return args
        (in_BTE,) = args
        self._lines = (in_BTE.shape[0], in_BTE.shape[1])
        return (in_BTE.flatten(0, 1).index_select(0, self._where_R)[None],)

    def put_back(self, _part: Any, _args: tuple[Tensor, ...], out_1RE: Tensor) -> Tensor:
        if self._where_R is None:
            return out_1RE
        lines, length = self._lines
        all_SE = out_1RE.new_zeros(lines * length, out_1RE.shape[-1])
        return all_SE.index_copy(0, self._where_R, out_1RE[0]).unflatten(0, (lines, length))
