"""Runs inside the GPU image (tests/containers/arena.py): Triton builds a C extension, caches and loads it."""

import os

from triton.runtime.build import compile_module_from_src

SOURCE = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "trial", "", -1, methods};
PyMODINIT_FUNC PyInit_trial(void) { return PyModule_Create(&module); }
"""

trial = compile_module_from_src(SOURCE, "trial")
assert trial.answer() == 42
assert trial.__file__.startswith(os.environ["TRITON_CACHE_DIR"])
print(trial.__file__)
