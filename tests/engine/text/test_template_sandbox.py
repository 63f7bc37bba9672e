"""Chat templates that try to take all memory or time, or to reach Python; and those that models have."""

import multiprocessing
import resource
import time

import pytest

from engine.errors import CheckpointError, InvalidRequest
from engine.text import template_sandbox
from engine.text.chat_template import ChatTemplate

BIG = "{% set big = 'x' * 8000000 %}"
#: Each takes gigabytes or hours in jinja2's own sandbox, or reaches for Python's objects.
HOSTILE = [
    "{{ 'a'.ljust(2 * 10 ** 9) }}",
    "{{ 'a'.rjust(2 * 10 ** 9) | length }}",
    "{{ 'a'.center(2 * 10 ** 9) | length }}",
    "{{ '1'.zfill(2 * 10 ** 9) | length }}",
    "{{ '\t'.expandtabs(2 * 10 ** 9) | length }}",
    "{{ ('\t' * 1000000).expandtabs(10000) | length }}",
    "{{ 'a'.translate({97: 'x' * 1000}) }}",
    "{{ '{:>2000000000}'.format(1) }}",
    "{{ '{a:>2000000000}'.format_map({'a': 1}) }}",
    "{{ ''.format.__self__ }}",
    "{{ (1).to_bytes(2000000000, 'big') | length }}",
    "{{ ('a' * 1000000).encode('utf-32') | length }}",
    "{{ 'x' * 2000000000 }}",
    "{{ 2000000000 * 'x' }}",
    "{{ [0] * 2000000000 }}",
    "{{ [messages] * 200000 }}",
    "{{ '%2000000000d' % 1 }}",
    "{{ 'a' | center(2000000000) }}",
    "{{ '%2000000000d' | format(1) }}",
    "{{ 'a' | indent(2000000000) }}",
    "{{ 'a' | indent('x' * 8000000) }}",
    "{{ [1] | batch(2000000000, 0) | list }}",
    "{{ [1] | slice(2000000000) | list }}",
    "{{ 1 | round(2000000000, 'ceil') }}",
    "{{ messages | tojson(separators=('x' * 8000000, 'y')) }}",
    "{{ messages | tojson(indent='x' * 8000000) }}",
    "{{ strftime_now('%c' * 1000000) | length }}",
    "{{ strftime_now('%999999999d') | length }}" * 2 + "{{ 1 / 0 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{% set n = namespace(x=9 ** 60) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ range(100000) | join('x' * 1000) | length }}",
    "{{ ('x' * 1000).join(('a,' * 90000).split(',')) | length }}",
    "{{ ('a' * 1000000) | replace('a', 'b' * 1000) | length }}",
    "{{ ('a' * 1000000).replace('a', 'b' * 1000) | length }}",
    "{{ ('a' * 1000000).replace('', 'b' * 1000) | length }}",
    "{{ ('a b ' * 2000000).split() | length }}",
    "{{ ('a b ' * 2000000).split(' ') | length }}",
    "{{ ('a\n' * 4000000).splitlines() | length }}",
    BIG + "{{ big | list | length }}",
    BIG + "{{ big | sort | length }}",
    BIG + "{{ big | map('upper') | list | length }}",
    BIG + "{{ big | title | length }}",
    BIG + "{{ range(100000) | map('default', big, true) | map('upper') | list | length }}",
    BIG + "{{ range(100000) | map('default', big, true) | join | length }}",
    BIG + "{{ [big, big, big] | tojson | length }}",
    BIG + "{{ big.rfind('x' * 4000000 + 'y') }}{{ (('y' + 'x' * 3999999) in big) }}",
    BIG + "{{ big.strip('y' * 4000000) }}",
    BIG + "{{ big | trim('y' * 4000000) }}",
    "".join(f"{{% set a{i} = 'x' * {7_000_000 + i} %}}" for i in range(400)),
    BIG + "".join(f"{{% set a{i} = big[1:] %}}" for i in range(400)),
    BIG + "".join(f"{{% set a{i} %}}{{{{ big }}}}{{% endset %}}" for i in range(400)),
    BIG + "{% macro f() %}{% for i in range(100000) %}{{ big }}{% endfor %}{% endmacro %}{{ f() | length }}",
    BIG + "{% set x %}{% for i in range(100000) %}{{ big }}{% endfor %}{% endset %}{{ x | length }}",
    BIG + "{% filter upper %}{% for i in range(100000) %}{{ big }}{% endfor %}{% endfilter %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}",
    "{% set n = namespace(x=(1,)) %}{% for i in range(99) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x == 1 }}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x=[]) %}{% for i in range(99) %}{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "{{ [range(100000), range(100000)] | map('list') | list | length }}",
    "{{ range(100000) | map('default', range(100000), true) | sum(start=[]) | length }}",
    "{{ [[1]] | sum(start=[]) }}",
    "{% set a = namespace() %}{{ a }}",
    "{% set a = namespace() %}{{ [a, a] }}",
    "{% set a = namespace() %}{{ a ~ a }}",
    "{% set a = namespace() %}{{ a | upper }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set _step = ''.strip %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set count_step = ''.strip %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "".join(f"{{% macro f{i}() %}}{{{{ f{i + 1}() }}}}{{{{ f{i + 1}() }}}}{{% endmacro %}}" for i in range(60))
    + "{% macro f60() %}{% endmacro %}{{ f0() }}",
    "".join(f"{{% block b{i} %}}{{{{ self.b{i + 1}() }}}}{{{{ self.b{i + 1}() }}}}{{% endblock %}}" for i in range(60)),
    "{% for i in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{% for i in range(1000000000) %}{% endfor %}",
    "{{ raise_exception('x' * 8000000) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ messages | map(attribute='__class__') | map(attribute='__mro__') | list }}",
    "{{ (messages | first).__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ range.__class__.__mro__ }}",
    "{{ raise_exception.__globals__.json }}",
    "{{ namespace.__init__.__globals__.os }}",
    "{{ lipsum.__globals__ }}{{ 1 / 0 }}",
    "{{ cycler.__init__ }}{{ 1 / 0 }}",
    "{% include 'config.json' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ messages[0].clear() }}",
]


def attempt(source: str) -> None:
    """Compile and render a hostile template; it must be refused in one short line."""
    try:
        ChatTemplate(source, {}).render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    except (InvalidRequest, CheckpointError) as error:
        reason = str(error)
    else:
        raise AssertionError(f"{source[:200]} was rendered")
    assert "\n" not in reason
    assert len(reason) < 1000
    assert "MemoryError" not in reason


def attempt_all_in_little_memory(queue: "multiprocessing.SimpleQueue[list[str]]") -> None:
    """Every template in turn, with 400 MB more than the process has now, and less time than a model's template gets."""
    template_sandbox.MAX_SECONDS = 0.3
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20, resource.RLIM_INFINITY))
    failures = []
    for source in HOSTILE:
        started = time.perf_counter()
        try:
            attempt(source)
        except BaseException as error:
            failures.append(f"{source[:150]}: {error!r}"[:400])
        took = time.perf_counter() - started
        if took > 5.0:
            failures.append(f"{source[:150]}: took {took:.1f} s")
    queue.put(failures)


def test_no_template_takes_much_memory_or_time() -> None:
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.SimpleQueue[list[str]] = context.SimpleQueue()
    process = context.Process(target=attempt_all_in_little_memory, args=(queue,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert queue.get() == []


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "{{ 'a' | nosuch }}", "{% for a in b %}" * 30 + "{% endfor %}" * 30, "{{" + "(" * 5000, "x" * 200_000],
)
def test_a_template_that_does_not_compile_is_refused_in_one_line(source: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        ChatTemplate(source, {})
    assert "\n" not in str(refusal.value)


def test_what_templates_of_models_use_works() -> None:
    source = (
        "{% set ns = namespace(found=false, n=0) %}{% for m in messages if m.role == 'user' %}"
        "{% set ns.n = ns.n + 1 %}{% set ns.found = true %}{% endfor %}"
        "{% macro show(m, k='') %}<{{ m.get('role', '?') | upper }}{{ k }}>{{ caller() }}{% endmacro %}"
        "{% for m in messages[::-1] %}{% call show(m, k=loop.index0) %}"
        "{{ m['content'].split('</think>')[-1].lstrip('\\n').strip() | replace('a', 'b') | trim }}{% endcall %}"
        "{% if not loop.last %}|{% endif %}{% endfor %}"
        "{{ ns.n }}{{ ns.found }}{{ messages | map(attribute='role') | join(',') }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ (messages | first).role }}"
        "{{ {'k': [1, 2.5, none]} | tojson }}{{ {'b': 1, 'a': 2} | dictsort }}{{ 'x' * 3 }}{{ [1] + [2] }}{{ 7 // 2 }}"
        "{{ messages is iterable and messages[0].content is string and tools is none }}{{ 'a\\nb' | indent(2) }}"
        "{{ [1, 2] | sum }}{{ 2.345 | round(1) }}{{ '<' | e }}{{ ['a', 'b'] | reverse | list }}{{ 'ab'[0] }}"
        "{% set text %}{{ 1 }}{% endset %}{{ text | int + 1 }}{{ dict(a=1).items() | list }}{{ 'a' in 'cat' }}"
    )
    messages = [{"role": "user", "content": " <think>x</think>\nca "}, {"role": "assistant", "content": "b"}]
    text = ChatTemplate(source, {}).render(messages, add_generation_prompt=True)
    assert text == (
        "<ASSISTANT0>b|<USER1>cb1Trueuser,assistant1user"
        "{\"k\": [1, 2.5, null]}[('a', 2), ('b', 1)]xxx[1, 2]3"
        "Truea\n  b32.3&lt;['b', 'a']a2[('a', 1)]True"
    )


def test_a_long_conversation_is_rendered_quickly() -> None:
    source = (
        "{% set ns = namespace(last='') %}{% for m in messages %}"
        "{% if messages | selectattr('role', 'equalto', 'user') | list | length > 0 %}"
        "{{ '<|' ~ m.role ~ '|>' + m.content | trim + '<|end|>' }}{% set ns.last = m.content.split('\\n')[0] %}"
        "{% endif %}{% endfor %}"
    )
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 400} for i in range(200)]
    template = ChatTemplate(source, {})
    started = time.perf_counter()
    text = template.render(messages, add_generation_prompt=True)
    assert len(text) > 200 * 1900
    assert time.perf_counter() - started < template_sandbox.MAX_SECONDS
