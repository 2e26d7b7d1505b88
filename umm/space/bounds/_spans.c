/* What follows from the gemms of a multiply's schedule along dependencies and lanes, before the first barrier: when each
 * action begins, when each rank's last gemm ends, and the shortest gemm of its rank that waits for an action, infinite
 * without any or where the action itself follows no gemm. Only gemms and what waits for one take time.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* one wheel for every Python from 3.11 on */
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

typedef int64_t Int;

enum { GEMM = 2 }; /* a kind, as in umm/schedules/table/details.py */
enum { RANK, LANE, OFFSETS, AFTER, TAKES, KIND, SPAN, START, LEAST, ARRAYS };
enum { DONE, UNFIT, NO_MEMORY };

/* Follow the first `count` actions; columns are whole, `lanes` counts also that of actions without a lane. */
static int follow(Int count, Int lanes, Int ranks, Int waits, const Int *rank, const Int *lane, const Int *offsets,
                  const Int *after, const double *takes, const int8_t *kind, double *span, double *start,
                  double *least) {
    double *finish = malloc((size_t)(count + lanes) * sizeof(double)), *last = finish + count;
    uint8_t *late = malloc((size_t)count + 1);
    int found = finish && late ? DONE : NO_MEMORY;
    for (Int i = 0; !found && i < lanes; i++) last[i] = 0.0;
    for (Int i = 0; !found && i < count; i++) {
        Int from = offsets[i], to = offsets[i + 1], on = lane[i] + 1;
        double begin = last[on];
        if (from < 0 || to > waits || rank[i] < 0 || rank[i] >= ranks) {
            found = UNFIT;
            break;
        }
        late[i] = kind[i] == GEMM;
        for (Int x = from; x < to; x++) {
            Int before = after[x];
            if (before < 0 || before >= i) {
                found = UNFIT;
                break;
            }
            late[i] |= late[before];
            if (finish[before] > begin) begin = finish[before];
        }
        if (found) break;
        start[i] = begin;
        finish[i] = last[on] = begin + (late[i] ? takes[i] : 0.0);
        if (kind[i] != GEMM) continue;
        if (finish[i] > span[rank[i]]) span[rank[i]] = finish[i];
        for (Int x = from; x < to; x++) {
            Int before = after[x];
            if (late[before] && rank[before] == rank[i] && takes[i] < least[before]) least[before] = takes[i];
        }
    }
    free(finish);
    free(late);
    return found;
}

static PyObject *spans(PyObject *module, PyObject *args) {
    (void)module;
    static const Py_ssize_t itemsize[ARRAYS] = {8, 8, 8, 8, 8, 1, 8, 8, 8};
    Py_buffer view[ARRAYS];
    Py_ssize_t taken = 0;
    PyObject *found = NULL;
    if (PyTuple_Size(args) != ARRAYS) {
        PyErr_Format(PyExc_TypeError, "spans takes %d arguments", ARRAYS);
        return NULL;
    }
    for (; taken < ARRAYS; taken++) {
        int flags = taken >= SPAN ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS;
        if (PyObject_GetBuffer(PyTuple_GetItem(args, taken), &view[taken], flags)) goto out;
        if (view[taken].itemsize != itemsize[taken]) {
            PyErr_Format(PyExc_TypeError, "array %zd has items of %zd bytes", taken, view[taken].itemsize);
            taken++;
            goto out;
        }
    }
    const Int *lane = view[LANE].buf;
    Int count = view[START].len / 8, lanes = 1;
    int fit = view[LEAST].len == 8 * count && view[OFFSETS].len >= 8 * (count + 1), ended = UNFIT;
    for (int i = RANK; i <= KIND; i++) fit &= i == OFFSETS || i == AFTER || view[i].len >= itemsize[i] * count;
    for (Int i = 0; fit && i < count; i++) {
        fit = lane[i] >= -1;
        if (lane[i] + 2 > lanes) lanes = lane[i] + 2;
    }
    if (fit)
        ended = follow(count, lanes, view[SPAN].len / 8, view[AFTER].len / 8, view[RANK].buf, lane, view[OFFSETS].buf,
                       view[AFTER].buf, view[TAKES].buf, view[KIND].buf, view[SPAN].buf, view[START].buf,
                       view[LEAST].buf);
    if (ended == NO_MEMORY) PyErr_NoMemory();
    else if (ended == UNFIT) PyErr_SetString(PyExc_ValueError, "the columns of the schedule do not belong together");
    else {
        Py_INCREF(Py_None);
        found = Py_None;
    }
out:
    while (taken > 0) PyBuffer_Release(&view[--taken]);
    return found;
}

static PyMethodDef methods[] = {
    {"spans", spans, METH_VARARGS, "Fill three arrays: see followed in statement_work.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_spans", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__spans(void) { return PyModule_Create(&module); }
