/* The arrays that compiled functions take from Python: contiguous, read or written where they lie. */
#ifndef UMM_ARRAYS_H
#define UMM_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* one wheel for every Python from 3.11 on */
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t Int;

static void release_arrays(Py_buffer *view, Py_ssize_t count) {
    while (count > 0) PyBuffer_Release(&view[--count]);
}

/* Take the arrays that a call begins with, before `more` other arguments. Those from `filled` up to `end` are written;
 * `items` has the bytes of an item of each as a digit, NULL where all have 8. 0 and an error if they cannot be taken. */
static int take_arrays(PyObject *args, const char *name, Py_buffer *view, Py_ssize_t count, Py_ssize_t more,
                       Py_ssize_t filled, Py_ssize_t end, const char *items) {
    Py_ssize_t taken = 0;
    if (PyTuple_Size(args) != count + more) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments", name, count + more);
        return 0;
    }
    for (; taken < count; taken++) {
        int flags = taken >= filled && taken < end ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS;
        if (PyObject_GetBuffer(PyTuple_GetItem(args, taken), &view[taken], flags)) break;
        if (view[taken].itemsize != (items ? items[taken] - '0' : 8)) {
            PyErr_Format(PyExc_TypeError, "array %zd has items of %zd bytes", taken, view[taken].itemsize);
            release_arrays(view, ++taken);
            return 0;
        }
    }
    if (taken < count) release_arrays(view, taken);
    return taken == count;
}

#endif
