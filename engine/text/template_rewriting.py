"""Adds calls of the sandbox to a parsed chat template: where it loops, and where it makes a text or a list by syntax
that jinja2 compiles without asking the environment. template_sandbox.py has the methods that are called.
"""

from typing import TypeVar

from jinja2 import Environment, nodes
from jinja2.visitor import NodeTransformer

_LoopT = TypeVar("_LoopT", nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


class _Bounded(NodeTransformer):
    """Adds calls of the sandbox to a template. They are attributes of the environment, not names, so the template
    cannot define others in their place."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        return self._count(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        return self._count(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:
        return self._count(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Block:
        return self._count(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node.nodes, node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        return self._charge(node)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._charge(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._charge(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        if node.ctx != "load":
            return node
        return self._charge(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        if isinstance(node.arg, nodes.Slice):  # a copy that jinja2 makes without asking the environment
            return self._charge(node)
        self.generic_visit(node)
        return node

    def _charge(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _call("charged", [node], node.lineno)

    def _count(self, node: _LoopT) -> _LoopT:
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([_call("count_step", [], node.lineno)], lineno=node.lineno))
        return node


def bounded_tree(tree: nodes.Template, sandbox: Environment) -> nodes.Template:
    """The template with the sandbox's calls added."""
    bounded: nodes.Template = _Bounded().visit(tree).set_environment(sandbox)
    return bounded


def _call(name: str, arguments: list[nodes.Expr], lineno: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name, lineno=lineno), arguments, [], None, None, lineno=lineno)
