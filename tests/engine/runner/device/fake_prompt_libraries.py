"""FlashAttention 3 and FlashInfer as modules in plain torch: the signatures and the checks of the real ones, so that
the adapters run without them. What the signatures take and the adapters do not pass is refused."""

import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch


@dataclass
class Faults:
    """What a library does wrong, and how often it was called."""

    extra_window: int = 0  #: tokens before the window that are read
    reads_ahead: bool = False  #: the causal mask is missing
    multiplies_hidden_values: bool = False  #: a value outside of the window is multiplied by zero, not left out
    error: str | None = None
    num_calls: int = 0
    plans: list[int] = field(default_factory=list)  #: of each plan of FlashInfer, the wrapper's identity

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window_left: int,
        softcap: float,
        causal: bool,
    ) -> torch.Tensor:
        """query [Q, H, D]: the last tokens of key, value [L, K, D]. window_left: -1: no window."""
        num_queries, num_heads, _ = query.shape
        first = 0 if window_left < 0 else max(0, len(key) - num_queries - window_left - self.extra_window)
        first = 0 if self.multiplies_hidden_values else first
        key, value = key[first:], value[first:]
        group_size = num_heads // key.shape[1]
        key, value = (heads.float().repeat_interleave(group_size, dim=1) for heads in (key, value))
        scores = torch.einsum("qhd,lhd->hql", query.float(), key) * scale
        if softcap > 0:
            scores = softcap * torch.tanh(scores / softcap)
        positions = torch.arange(len(key) - num_queries, len(key))[:, None]
        distances = positions - torch.arange(len(key))
        is_hidden = torch.zeros_like(distances, dtype=torch.bool)
        if causal and not self.reads_ahead:
            is_hidden |= distances < 0
        if window_left >= 0:
            is_hidden |= distances > window_left + self.extra_window
        weights = scores.masked_fill(is_hidden, -torch.inf).softmax(-1)
        return torch.einsum("hql,lhd->qhd", weights, value).to(query.dtype)

    def note_call(self) -> None:
        self.num_calls += 1
        if self.error is not None:
            raise RuntimeError(self.error)


def install_flash_attention(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Make `import flash_attn_interface` find a fake."""

    def flash_attn_with_kvcache(
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        k: None = None,
        v: None = None,
        qv: None = None,
        rotary_cos: None = None,
        rotary_sin: None = None,
        cache_seqlens: torch.Tensor | None = None,
        cache_batch_idx: None = None,
        cache_leftpad: None = None,
        page_table: torch.Tensor | None = None,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_k_new: None = None,
        max_seqlen_q: int | None = None,
        rotary_seqlens: None = None,
        q_descale: None = None,
        k_descale: None = None,
        v_descale: None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        attention_chunk: int = 0,
        softcap: float = 0.0,
        rotary_interleaved: bool = True,
        scheduler_metadata: None = None,
        num_splits: int = 0,
        pack_gqa: None = None,
        sm_margin: int = 0,
        return_softmax_lse: bool = False,
    ) -> torch.Tensor:
        faults.note_call()
        unused = (k, v, qv, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, cu_seqlens_k_new, rotary_seqlens)
        assert not any(value is not None for value in (*unused, q_descale, k_descale, v_descale, scheduler_metadata))
        assert page_table is not None
        assert cache_seqlens is not None
        assert cu_seqlens_q is not None
        assert softmax_scale is not None
        _check_dtypes(q, k_cache, v_cache)
        assert page_table.dtype == cache_seqlens.dtype == cu_seqlens_q.dtype == torch.int32
        assert page_table.stride(-1) == 1
        num_rows = len(cu_seqlens_q) - 1
        assert page_table.shape[0] == cache_seqlens.shape[0] == num_rows
        assert max_seqlen_q == int(cu_seqlens_q.diff().max())
        assert causal == (window_size[1] in (-1, 0))
        page_tokens = k_cache.shape[1]
        output = torch.empty(q.shape, dtype=q.dtype)
        for row, length in enumerate(cache_seqlens.tolist()):
            tokens = slice(*cu_seqlens_q[row : row + 2].tolist())
            pages = page_table[row, : -(-length // page_tokens)].long()
            key, value = (cache[pages].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
            options = {"scale": softmax_scale, "window_left": window_size[0], "softcap": softcap}
            output[tokens] = faults.attend(q[tokens], key, value, **options, causal=causal)  # type: ignore[arg-type]
        return output

    _install(monkeypatch, "flash_attn_interface", flash_attn_with_kvcache=flash_attn_with_kvcache)


def install_flash_infer(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Make `import flashinfer` find a fake."""

    class BatchPrefillWithPagedKVCacheWrapper:
        def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD") -> None:
            assert float_workspace_buffer.nbytes >= 128 * 2**20
            assert kv_layout == "HND"

        def plan(
            self,
            qo_indptr: torch.Tensor,
            paged_kv_indptr: torch.Tensor,
            paged_kv_indices: torch.Tensor,
            paged_kv_last_page_len: torch.Tensor,
            num_qo_heads: int,
            num_kv_heads: int,
            head_dim_qk: int,
            page_size: int,
            head_dim_vo: None = None,
            custom_mask: None = None,
            packed_custom_mask: None = None,
            causal: bool = False,
            pos_encoding_mode: str = "NONE",
            use_fp16_qk_reduction: bool = False,
            sm_scale: float | None = None,
            window_left: int = -1,
            logits_soft_cap: float | None = None,
            rope_scale: None = None,
            rope_theta: None = None,
            q_data_type: torch.dtype = torch.float16,
            kv_data_type: torch.dtype | None = None,
        ) -> None:
            indices = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
            assert all(tensor.dtype == torch.int32 for tensor in indices)
            assert len(qo_indptr) == len(paged_kv_indptr) == len(paged_kv_last_page_len) + 1
            assert len(paged_kv_indices) == int(paged_kv_indptr[-1])
            assert 1 <= int(paged_kv_last_page_len.min()) <= int(paged_kv_last_page_len.max()) <= page_size
            assert sm_scale is not None
            faults.plans.append(id(self))
            self._indices = indices
            self._shape = (num_kv_heads, page_size, head_dim_qk)
            self._num_heads = num_qo_heads
            self._dtypes = (q_data_type, kv_data_type)
            self._options: dict[str, Any] = {
                "scale": sm_scale,
                "window_left": window_left,
                "softcap": logits_soft_cap or 0.0,
                "causal": causal,
            }

        def run(
            self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, torch.Tensor], *, out: torch.Tensor | None = None
        ) -> torch.Tensor:
            faults.note_call()
            assert out is not None
            assert out.shape == q.shape
            assert out.is_contiguous(), "the real library writes rows one after another"
            _check_dtypes(q, *paged_kv_cache)
            assert self._dtypes == (q.dtype, paged_kv_cache[0].dtype)
            assert all(cache.shape[1:] == self._shape for cache in paged_kv_cache)
            assert q.shape[1] == self._num_heads
            starts, page_starts, page_ids, last_lengths = self._indices
            assert len(q) == int(starts[-1])
            for row, last in enumerate(last_lengths.tolist()):
                tokens, own = (slice(*bounds[row : row + 2].tolist()) for bounds in (starts, page_starts))
                length = (own.stop - own.start - 1) * self._shape[1] + last
                key, value = (
                    cache[page_ids[own].long()].transpose(1, 2).flatten(0, 1)[:length] for cache in paged_kv_cache
                )
                out[tokens] = faults.attend(q[tokens], key, value, **self._options)
            return out

    _install(monkeypatch, "flashinfer", BatchPrefillWithPagedKVCacheWrapper=BatchPrefillWithPagedKVCacheWrapper)


def _check_dtypes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    assert query.dtype == key.dtype == value.dtype
    assert query.dtype in (torch.bfloat16, torch.float16)
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1


def _install(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for key, value in names.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)
