/*
 * The part of Python's C interface that cffi's generated code calls: our own declarations, so that
 * building needs no headers of Python (on Debian: python3-dev, which only root can install).
 * All of it belongs to the stable ABI, which every Python 3 keeps. tests/contract/test_python_header.py
 * holds the declarations against the real header. If a newer cffi calls a function that is missing
 * here, the compiler names it.
 */
#ifndef VGPU_PYTHON_H
#define VGPU_PYTHON_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef ssize_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _ts PyThreadState;

extern PyObject _Py_NoneStruct;

void Py_IncRef(PyObject *object);
void Py_DecRef(PyObject *object);
_Noreturn void Py_FatalError(const char *message);

PyObject *PyErr_Occurred(void);
int PyArg_UnpackTuple(PyObject *tuple, const char *name, Py_ssize_t min, Py_ssize_t max, ...);
PyObject *PyImport_ImportModule(const char *name);
PyObject *PyObject_CallMethod(PyObject *object, const char *name, const char *format, ...);
void *PyObject_Malloc(size_t bytes);
void PyObject_Free(void *address);

PyObject *PyBool_FromLong(long value);
PyObject *PyFloat_FromDouble(double value);
double PyFloat_AsDouble(PyObject *object);
PyObject *PyLong_FromLong(long value);
PyObject *PyLong_FromUnsignedLong(unsigned long value);
PyObject *PyLong_FromLongLong(long long value);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long value);
PyObject *PyLong_FromVoidPtr(void *address);

PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *state);

#ifndef VGPU_WITH_PYTHON_H
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define Py_None (&_Py_NoneStruct)
#define Py_INCREF(object) Py_IncRef((PyObject *)(object))
#define Py_DECREF(object) Py_DecRef((PyObject *)(object))
#define Py_XDECREF(object) Py_DecRef((PyObject *)(object)) /* the function takes NULL too */
#define Py_BEGIN_ALLOW_THREADS \
    { \
        PyThreadState *_save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS \
    PyEval_RestoreThread(_save); \
    }
#endif

#endif
