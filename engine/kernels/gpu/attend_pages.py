"""The kernel of paged attention: one tile of queries against the keys and values of one head, read page by page.

One kernel for all attention over pages. MODE selects the queries and the tokens that they read:

decode  one query per row; its whole context or window
mixed   any number of queries per row
prefix  one query per row; all rows of a group read the same tokens, from the pages of the group's first row
suffix  one query per row; the tokens behind those that its group shares

The query heads of a key/value head are in one tile (row m of the tile is head m % GROUP_SIZE of query m // GROUP_SIZE),
so their keys and values are read once; or, where they are more than a tile takes, in HEAD_TILES tiles of GROUP_SIZE
heads. Online softmax (Milakov and Gimelshein 2018) to the base 2, because exp2 is an
instruction and exp is not.

Parts (Flash-Decoding, Dao et al. 2023): several programs may share the tokens that a tile reads. Each part has a state
of its own, the output and the log of the sum of exponentials. In decode and suffix mode the program of a tile that
finishes last merges them, unless the tile has many channels; else merge_states does. The length of a part depends
on these tokens, in mixed mode also on the number of the row's queries, and never on the batch: MIN_PART tokens, or more
if there would be more than max_parts parts, in mixed mode for all tiles of the row together. The grid's third dimension
Z decides nothing: each program computes every Z-th part of its tile.

Latents (multi-head latent attention, arXiv 2405.04434): values are the last channels of the keys, and only keys are
stored. A tile of them is loaded once, for both products; the first TURNED_DIM channels, which are the rotated ones, are
a tile of their own, because 512 + 64 channels in one tile would be 1,024. Sums of 64 rows and 512 channels do not fit
into registers: two programs (VALUE_TILES) then have half of the channels each, and both compute all scores.

The page of the next tile is looked up while the current tile is computed, and carried into the next iteration. So loads
of keys and values do not depend on a load of their own iteration, and the compiler keeps num_stages - 1 tiles in
flight; with the look-up in the same iteration it keeps only one.
"""

import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import wait_for_previous
from engine.kernels.gpu.merge_states import merge_parts
from engine.kernels.gpu.owner_of_tile import owner_of_tile

_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _look_up(table_ptr, start, lower, upper, PAGE_TOKENS: tl.constexpr, BLOCK_T: tl.constexpr):
    """Page ids of the tile at token `start`: one id if a page holds whole tiles, else one per token. Table entries
    without a token of [lower, upper) are not read."""
    if PAGE_TOKENS % BLOCK_T == 0:
        is_live = (start + BLOCK_T > lower) & (start < upper)
        return tl.load(table_ptr + start // PAGE_TOKENS, mask=is_live, other=0)
    else:
        tokens = start + tl.arange(0, BLOCK_T)
        is_live = (tokens >= lower) & (tokens < upper)
        return tl.load(table_ptr + tokens // PAGE_TOKENS, mask=is_live, other=0)


@triton.jit
def _load_tile(ptr, places, is_read, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, IS_MASKED: tl.constexpr):
    """Keys or values [BLOCK_T, BLOCK_D] at the given places; zeros for channels behind HEAD_DIM and, if IS_MASKED, for
    tokens that are not read."""
    channels = tl.arange(0, BLOCK_D)
    ptrs = ptr + places[:, None] + channels[None, :]
    if IS_MASKED:
        return tl.load(ptrs, mask=is_read[:, None] & (channels < HEAD_DIM)[None, :], other=0.0)
    elif HEAD_DIM == BLOCK_D:
        return tl.load(ptrs)
    else:
        return tl.load(ptrs, mask=(channels < HEAD_DIM)[None, :], other=0.0)


@triton.jit
def _read_tiles(
    accumulator,
    row_max,
    row_sum,
    page_ids,
    first,
    last,
    query,
    turned_query,
    other_query,
    positions,
    slopes,
    table_ptr,
    keys_ptr,
    values_ptr,
    others_ptr,
    key_scales_ptr,
    value_scales_ptr,
    page_stride,
    token_stride,
    scale_page_stride,
    scale_token_stride,
    lower,
    upper,
    window,
    score_scale,
    softcap,
    HAS_WINDOW: tl.constexpr,
    IS_CHUNKED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    IS_MASKED: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TURNED_DIM: tl.constexpr,
    BLOCK_TURNED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One pass of online softmax over the tokens [first, last), tile by tile; returns the new accumulator, row_max,
    row_sum and page ids. Without IS_MASKED every query row reads every token of these tiles."""
    for start in range(first, last, BLOCK_T):
        tokens = start + tl.arange(0, BLOCK_T)
        is_read = (tokens >= lower) & (tokens < upper)
        next_page_ids = _look_up(table_ptr, start + BLOCK_T, lower, upper, PAGE_TOKENS, BLOCK_T)
        wide_ids = page_ids.to(tl.int64)  # before the product: pools are larger than 2^31 elements
        places = wide_ids * page_stride + (tokens % PAGE_TOKENS) * token_stride
        if TURNED_DIM > 0:
            value = _load_tile(values_ptr, places, is_read, HEAD_DIM, BLOCK_D, IS_MASKED)
            turned_key = _load_tile(keys_ptr, places, is_read, TURNED_DIM, BLOCK_TURNED, IS_MASKED)
            scores = tl.dot(query, tl.trans(value.to(query.dtype)), input_precision=PRECISION)
            scores = tl.dot(turned_query, tl.trans(turned_key.to(query.dtype)), scores, input_precision=PRECISION)
            if other_query is not None:
                other = _load_tile(others_ptr, places, is_read, HEAD_DIM, BLOCK_D, IS_MASKED)
                scores = tl.dot(other_query, tl.trans(other.to(query.dtype)), scores, input_precision=PRECISION)
        else:
            key = _load_tile(keys_ptr, places, is_read, HEAD_DIM, BLOCK_D, IS_MASKED)
            scores = tl.dot(query, tl.trans(key.to(query.dtype)), input_precision=PRECISION)
        if key_scales_ptr is not None:
            scale_places = wide_ids * scale_page_stride + (tokens % PAGE_TOKENS) * scale_token_stride
            key_scales = tl.load(key_scales_ptr + scale_places, mask=is_read, other=0.0)
            value_scales = tl.load(value_scales_ptr + scale_places, mask=is_read, other=0.0)
            scores *= key_scales[None, :]
        if HAS_SOFTCAP:
            # tanh(x) = 2 sigmoid(2 x) - 1; beyond 2^64 it is -1 to the last bit.
            scores = tl.exp2(tl.minimum(scores * (score_scale * (-2 * _LOG2_E) / softcap), 64.0))
            scores = (2.0 / (1.0 + scores) - 1.0) * (softcap * _LOG2_E)
        if slopes is not None:
            if not HAS_SOFTCAP:
                scores *= score_scale * _LOG2_E
            scores += (slopes * _LOG2_E)[:, None] * (tokens[None, :] - positions[:, None]).to(tl.float32)
        # A positive factor can be applied after the maximum is known, as part of an FMA.
        factor = 1.0 if HAS_SOFTCAP or slopes is not None else score_scale * _LOG2_E
        if IS_MASKED:
            # A causal row reads no token behind its own, so none behind the last one; in a window it reads no token
            # before the first. Padding rows of the tile need no mask.
            is_visible = tokens[None, :] <= positions[:, None] if IS_CAUSAL else is_read[None, :]
            if HAS_WINDOW:
                if IS_CHUNKED:
                    is_visible = is_visible & (tokens[None, :] >= (positions // window * window)[:, None])
                else:
                    is_visible = is_visible & (tokens[None, :] > positions[:, None] - window)
            scores = tl.where(is_visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
        # With a mask a row may have read no token yet: -inf - -inf would be NaN.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max) if IS_MASKED else new_max
        weights = tl.exp2(scores * factor - shift[:, None])
        decay = tl.exp2(row_max - shift)
        row_sum = row_sum * decay + tl.sum(weights, 1)
        row_max = new_max
        accumulator *= decay[:, None]
        if TURNED_DIM == 0:
            value = _load_tile(values_ptr, places, is_read, HEAD_DIM, BLOCK_D, IS_MASKED)
        if value_scales_ptr is not None:
            weights *= value_scales[None, :]
        accumulator = tl.dot(weights.to(query.dtype), value.to(query.dtype), accumulator, input_precision=PRECISION)
        page_ids = next_page_ids
    return accumulator, row_max, row_sum, page_ids


@triton.jit(
    # Values that change from step to step or with the batch must not be specialised on.
    do_not_specialize=[
        "table_stride",
        "lse_stride",
        "lse_head_stride",
        "num_owners",
        "window",
        "max_parts",
    ],
    do_not_specialize_on_alignment=[
        "table_ptr",
        "slots_ptr",
        "lengths_ptr",
        "starts_ptr",
        "prefixes_ptr",
        "counts_ptr",
        "earlier_ptr",
    ],
)
def attend_pages(
    query_ptr,
    pages_ptr,
    table_ptr,
    slots_ptr,
    lengths_ptr,
    starts_ptr,
    prefixes_ptr,
    output_ptr,
    lse_ptr,
    counts_ptr,
    earlier_ptr,
    merged_ptr,
    arrivals_ptr,
    slopes_ptr,
    sinks_ptr,
    key_scales_ptr,
    value_scales_ptr,
    page_stride,
    value_stride,
    kv_head_stride,
    token_stride,
    table_stride,
    query_stride,
    query_head_stride,
    output_stride,
    output_head_stride,
    output_part_stride,
    lse_stride,
    lse_head_stride,
    merged_stride,
    merged_head_stride,
    scale_page_stride,
    scale_head_stride,
    scale_token_stride,
    num_owners,
    max_parts,
    window,
    score_scale,
    softcap,
    MODE: tl.constexpr,
    HAS_PARTS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    IS_CHUNKED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_TILES: tl.constexpr,
    VALUE_TILES: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TURNED_DIM: tl.constexpr,
    BLOCK_TURNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_T: tl.constexpr,
    MIN_PART: tl.constexpr,
    PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (tiles, key/value heads times HEAD_TILES times VALUE_TILES, programs that share the parts of a tile);
    launched by paged_attention.launch. Tensors as in StepKernels.

    HEAD_DIM: channels of a value that the program sums, of VALUE_TILES times as many (1, or 2 for latents);
    TURNED_DIM: those of a key before the ones that are its value, 0: values are stored.
    num_owners: sequences or groups in starts; 0 without starts. HAS_PARTS: output and lse are the workspace, float32;
    the states of a row's parts are written from earlier[row] on (None: from 0 on), and counts[row] becomes the number
    of all states up to the last of them. merged_ptr: receives the result, with arrivals [rows * H], zeros; None: the
    states are not merged. UPCAST: products in float32, for the interpreter, which has no bfloat16
    products.
    """
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP_SIZE
    head_tile = tl.program_id(1) // VALUE_TILES
    value_tile = tl.program_id(1) % VALUE_TILES
    kv_head = head_tile // HEAD_TILES
    wait_for_previous(WAITS)

    if MODE == "decode" or MODE == "suffix":
        owner = tl.program_id(0)
        first_query = owner
        num_queries = 1
        length = tl.load(lengths_ptr + owner)
        first_position = length - 1
    else:
        # The last tiles of a prompt read the most tokens, so they start first.
        tile = tl.num_programs(0) - 1 - tl.program_id(0)
        group = owner_of_tile(starts_ptr, num_owners, tile, BLOCK_Q)
        group_start = tl.load(starts_ptr + group)
        group_queries = tl.load(starts_ptr + group + 1) - group_start
        tile_start = (tile - (group_start // BLOCK_Q + group)) * BLOCK_Q
        if tile_start >= group_queries:
            return
        first_query = group_start + tile_start
        num_queries = tl.minimum(group_queries - tile_start, BLOCK_Q)
        if MODE == "mixed":
            owner = group
            length = tl.load(lengths_ptr + owner)
        else:
            owner = group_start
            length = tl.load(prefixes_ptr + owner)
        first_position = length - group_queries + tile_start
    slot = tl.load(slots_ptr + owner)

    # The tile reads tokens [lower, upper), in steps that begin at multiples of BLOCK_T. A constant 0 in place of this
    # minimum costs some 30 registers: the compiler then keeps offsets of pages for all parts.
    lower = tl.minimum(length, 0) if HAS_PARTS else owner * 0
    upper = length
    if HAS_WINDOW:
        lower = first_position // window * window if IS_CHUNKED else tl.maximum(first_position - window + 1, 0)
    if MODE == "suffix":
        lower = tl.load(prefixes_ptr + owner)
    if MODE == "mixed" and IS_CAUSAL:
        upper = tl.minimum(upper, first_position + num_queries)
    if slot < 0:
        upper = lower

    tile_rows = tl.arange(0, BLOCK_M)
    queries = tile_rows // GROUP_SIZE
    heads = head_tile * GROUP_SIZE + tile_rows % GROUP_SIZE
    is_row = queries < num_queries
    rows = (first_query + queries).to(tl.int64)
    channels = tl.arange(0, BLOCK_D)
    is_element = is_row[:, None] & (channels < HEAD_DIM)[None, :]
    places = rows * output_stride + heads * output_head_stride + value_tile * HEAD_DIM

    begin = lower // BLOCK_T * BLOCK_T
    if HAS_PARTS:
        if MODE == "mixed":
            max_parts = tl.maximum(max_parts // tl.cdiv(group_queries, BLOCK_Q), 1)
        part_tokens = tl.cdiv(tl.cdiv(tl.maximum(upper - begin, 0), max_parts), BLOCK_T) * BLOCK_T
        part_tokens = tl.maximum(part_tokens, MIN_PART)
        num_parts = tl.where(upper > lower, tl.cdiv(upper - begin, part_tokens), 0)
        first_part = tl.program_id(2)
        part_step = tl.num_programs(2)
        first_state = 0
        if earlier_ptr is not None:
            first_state = tl.load(earlier_ptr + owner)
        if tl.program_id(1) == 0 and first_part == 0:
            num_states = tl.zeros((BLOCK_M,), tl.int32) + first_state + num_parts
            tl.store(counts_ptr + rows, num_states, mask=is_row & (tile_rows % GROUP_SIZE == 0))
        # A row without tokens of its own has one program: it merges the states that there are.
        if first_part >= (num_parts if merged_ptr is None else tl.maximum(num_parts, 1)):
            return
    else:
        num_parts = 1
        first_part = 0
        part_step = 1
        if upper <= lower:
            if MODE == "decode":
                # Padding rows: stale memory may hold NaN, with which later loops over the row would not end.
                nothing = tl.zeros((BLOCK_M, BLOCK_D), output_ptr.dtype.element_ty)
                tl.store(output_ptr + places[:, None] + channels[None, :], nothing, mask=is_element)
            return

    query_ptrs = query_ptr + (rows * query_stride + heads * query_head_stride)[:, None]
    first_value = TURNED_DIM + value_tile * HEAD_DIM
    query = tl.load(query_ptrs + first_value + channels[None, :], mask=is_element, other=0.0)
    if UPCAST:
        query = query.to(tl.float32)
    other_query = None
    others_ptr = None
    if VALUE_TILES == 2:
        first_other = TURNED_DIM + (1 - value_tile) * HEAD_DIM
        other_query = tl.load(query_ptrs + first_other + channels[None, :], mask=is_element, other=0.0).to(query.dtype)
    turned_query = None
    if TURNED_DIM > 0:
        turned = tl.arange(0, BLOCK_TURNED)
        is_turned = is_row[:, None] & (turned < TURNED_DIM)[None, :]
        turned_query = tl.load(query_ptrs + turned[None, :], mask=is_turned, other=0.0).to(query.dtype)
    positions = first_position + queries
    if MODE == "prefix" and slopes_ptr is not None:
        positions = tl.load(lengths_ptr + rows, mask=is_row, other=0) - 1
    slopes = None
    if slopes_ptr is not None:
        slopes = tl.load(slopes_ptr + heads)
    keys_ptr = pages_ptr + kv_head * kv_head_stride
    values_ptr = keys_ptr + (value_stride if TURNED_DIM == 0 else first_value)
    if VALUE_TILES == 2:
        others_ptr = keys_ptr + first_other
    table_ptr += slot.to(tl.int64) * table_stride
    if key_scales_ptr is not None:
        key_scales_ptr += kv_head * scale_head_stride
        value_scales_ptr += kv_head * scale_head_stride

    # What is invariant in this loop is computed in each part, and takes no registers during the loops in it.
    for part in tl.range(first_part, num_parts, part_step, disable_licm=True):
        part_lower = lower
        part_upper = upper
        if HAS_PARTS:
            part_lower = tl.maximum(lower, begin + part * part_tokens)
            part_upper = tl.minimum(upper, begin + (part + 1) * part_tokens)
        accumulator = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        row_sum = tl.zeros((BLOCK_M,), tl.float32)
        if sinks_ptr is not None and MODE != "prefix":
            row_max = tl.where(part == 0, tl.load(sinks_ptr + heads) * _LOG2_E, row_max)
            row_sum += tl.where(part == 0, 1.0, 0.0)
        first = part_lower // BLOCK_T * BLOCK_T
        page_ids = _look_up(table_ptr, first, part_lower, part_upper, PAGE_TOKENS, BLOCK_T)

        # With many queries, the tiles that all of them read completely have a loop without masks; only the tiles before
        # it (edge of the window) and after it (diagonal, end of the context) have a loop with masks. With one query
        # there is one loop, because a second one would have to fill its pipeline again.
        HAS_EDGES: tl.constexpr = MODE == "mixed"
        if MODE == "decode" or MODE == "suffix":
            whole_first = part_upper
            whole_last = part_upper
        elif MODE == "prefix":
            whole_first = first
            whole_last = part_upper // BLOCK_T * BLOCK_T
        else:
            whole_first = first
            whole_last = part_upper // BLOCK_T * BLOCK_T
            if IS_CAUSAL:
                whole_last = tl.minimum((first_position + 1) // BLOCK_T * BLOCK_T, whole_last)
            if HAS_WINDOW:
                if IS_CHUNKED:
                    last_begin = (first_position + num_queries - 1) // window * window
                else:
                    last_begin = tl.maximum(first_position + num_queries - window, 0)
                whole_first = tl.minimum(tl.maximum(tl.cdiv(last_begin, BLOCK_T) * BLOCK_T, first), part_upper)
            whole_last = tl.maximum(whole_first, whole_last)

        if HAS_WINDOW or MODE == "decode" or MODE == "suffix":
            accumulator, row_max, row_sum, page_ids = _read_tiles(
                accumulator, row_max, row_sum, page_ids, first, whole_first, query, turned_query, other_query,
                positions, slopes, table_ptr, keys_ptr, values_ptr, others_ptr, key_scales_ptr, value_scales_ptr,
                page_stride, token_stride, scale_page_stride, scale_token_stride,
                part_lower, part_upper, window, score_scale, softcap,
                HAS_WINDOW and HAS_EDGES, IS_CHUNKED, HAS_SOFTCAP, IS_CAUSAL and HAS_EDGES, True,
                PAGE_TOKENS, HEAD_DIM, BLOCK_D, TURNED_DIM, BLOCK_TURNED, BLOCK_T, PRECISION,
            )  # fmt: skip
        if MODE == "mixed" or MODE == "prefix":
            accumulator, row_max, row_sum, page_ids = _read_tiles(
                accumulator, row_max, row_sum, page_ids, whole_first, whole_last, query, turned_query, other_query,
                positions, slopes, table_ptr, keys_ptr, values_ptr, others_ptr, key_scales_ptr, value_scales_ptr,
                page_stride, token_stride, scale_page_stride, scale_token_stride,
                part_lower, part_upper, window, score_scale, softcap,
                False, IS_CHUNKED, HAS_SOFTCAP, False, False,
                PAGE_TOKENS, HEAD_DIM, BLOCK_D, TURNED_DIM, BLOCK_TURNED, BLOCK_T, PRECISION,
            )  # fmt: skip
            accumulator, row_max, row_sum, page_ids = _read_tiles(
                accumulator, row_max, row_sum, page_ids, whole_last, part_upper, query, turned_query, other_query,
                positions, slopes, table_ptr, keys_ptr, values_ptr, others_ptr, key_scales_ptr, value_scales_ptr,
                page_stride, token_stride, scale_page_stride, scale_token_stride,
                part_lower, part_upper, window, score_scale, softcap,
                HAS_WINDOW and HAS_EDGES, IS_CHUNKED, HAS_SOFTCAP, IS_CAUSAL and HAS_EDGES, True,
                PAGE_TOKENS, HEAD_DIM, BLOCK_D, TURNED_DIM, BLOCK_TURNED, BLOCK_T, PRECISION,
            )  # fmt: skip

        sums = tl.where(row_sum > 0.0, row_sum, 1.0)  # padding rows of the tile may have read no token
        accumulator /= sums[:, None]
        # The addresses depend on the part, or they would be computed before the loop and take registers all along.
        part_places = places
        if HAS_PARTS:
            state = first_state + part
            part_places += state * output_part_stride
            lse_ptrs = lse_ptr + rows * lse_stride + heads * lse_head_stride + state
            tl.store(lse_ptrs, (row_max + tl.log2(sums)) * _LN_2, mask=is_row & (value_tile == 0))
        output_ptrs = output_ptr + part_places[:, None] + channels[None, :]
        tl.store(output_ptrs, accumulator.to(output_ptr.dtype.element_ty), mask=is_element)

    if merged_ptr is not None:
        head = head_tile * GROUP_SIZE
        row = owner.to(tl.int64)
        merge_parts(
            output_ptr + row * output_stride + head * output_head_stride,
            lse_ptr + row * lse_stride + head * lse_head_stride,
            merged_ptr + row * merged_stride + head * merged_head_stride,
            arrivals_ptr + owner * tl.num_programs(1) + head_tile,
            tl.minimum(part_step, tl.maximum(num_parts, 1)),
            first_state + num_parts,
            output_head_stride, output_part_stride, lse_head_stride, merged_head_stride, GROUP_SIZE, HEAD_DIM, BLOCK_D,
        )  # fmt: skip
