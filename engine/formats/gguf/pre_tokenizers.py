"""How the kinds of byte-level BPE in GGUF files split a text before pieces are merged.

The regular expressions are those of the models' own tokenizer.json; the names are llama.cpp's. The last step is always
the alphabet of bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_WITH_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_ENDINGS}|{_WORD}|\p{{N}}|{_REST}"
_QWEN35 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_GPT_4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}|{_REST_WITH_SLASH}"
)
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}|{_REST_WITH_SLASH}"
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    "\r\n"
    r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["
    "\r\n"
    r"]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _EAST_ASIAN,
    r"\p{N}",
)


@dataclass(frozen=True, slots=True)
class Splitting:
    """One kind."""

    patterns: tuple[str, ...] = ()  #: one after another, each match by itself
    is_like_gpt2: bool = False  #: what the patterns leave is split as by GPT-2
    ignores_merges: bool = False  #: a part that is a piece stays one
    adds_bos: bool = False  #: unless the file says otherwise
    composes: bool = False  #: characters are composed (NFC)

    @property
    def normalizer(self) -> normalizers.Normalizer | None:
        """What changes the text before."""
        return normalizers.NFC() if self.composes else None

    @property
    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """What splits it."""
        split = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.is_like_gpt2)
        return pre_tokenizers.Sequence([*split, level])


_GPT2 = Splitting(is_like_gpt2=True)
_DIGITS = Splitting((r"\p{N}",), is_like_gpt2=True)
_LIKE_LLAMA3 = Splitting((_LLAMA3,), ignores_merges=True, adds_bos=True)
_LIKE_QWEN2 = Splitting((_QWEN2,), composes=True)

#: By the name in tokenizer.ggml.pre.
SPLITTINGS: Mapping[str, Splitting] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "olmo", "mellum", "granite-docling"), _GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LIKE_LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Splitting((_LLAMA3,))),
    "glm4": Splitting((_LLAMA3,), ignores_merges=True),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _LIKE_QWEN2),
    "qwen35": Splitting((_QWEN35,), composes=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), Splitting((_GPT_4O,), ignores_merges=True)),
    "tekken": Splitting((_TEKKEN,), ignores_merges=True, adds_bos=True),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "command-r"), _DIGITS),
    "deepseek-llm": Splitting(_DEEPSEEK_LLM),
    "deepseek-coder": Splitting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), Splitting(_DEEPSEEK_V3)),
}
