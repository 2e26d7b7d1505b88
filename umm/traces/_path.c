/* The critical path of a trace, followed back from the last finish: an action was held up by whichever finished last of
 * what it waits for and of what its lane did before it. The lane comes first: of equally late ones it is what would
 * have held the action up anyway.
 */
#include "umm/arrays.h"

enum { BARRIER = 7 }; /* a kind, as in umm/schedules/table/details.py */
enum { NONE = -1 };
enum { LANE, OFFSETS, AFTER, END, KIND, FOUND, ARRAYS };

/* Write a path of `count` actions to the end of `found`, without barriers; return where it starts, NONE if the columns do
 * not belong together, NO_MEMORY for lack of it. */
enum { NO_MEMORY = -2 };
static Int write_path(Int count, Int lanes, Int waits, const Int *lane, const Int *offsets, const Int *after,
                      const double *end, const int8_t *kind, Int *found) {
    Int *before = malloc((size_t)(count + lanes) * sizeof(Int)), *last = before + count, action = 0, place = count;
    if (!before) return NO_MEMORY;
    for (Int i = 0; i < lanes; i++) last[i] = NONE;
    for (Int i = 0; i < count; i++) {
        before[i] = lane[i] >= 0 ? last[lane[i]] : NONE;
        if (lane[i] >= 0) last[lane[i]] = i;
        if (end[i] > end[action]) action = i;
    }
    for (Int left = count; action != NONE; left--) {
        Int held_up = before[action];
        if (!left || offsets[action] < 0 || offsets[action + 1] > waits) {
            place = NONE;
            break;
        }
        if (kind[action] != BARRIER) found[--place] = action;
        for (Int i = offsets[action]; i < offsets[action + 1]; i++) {
            if (after[i] < 0 || after[i] >= count) {
                free(before);
                return NONE;
            }
            if (held_up == NONE || end[after[i]] > end[held_up]) held_up = after[i];
        }
        action = held_up;
    }
    free(before);
    return place;
}

static PyObject *path(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[ARRAYS];
    PyObject *found = NULL;
    if (!take_arrays(args, "path", view, ARRAYS, 0, FOUND, ARRAYS, "888818")) return NULL;
    const Int *lane = view[LANE].buf;
    Int count = view[KIND].len, lanes = 0, place = NONE;
    int fit = count > 0 && view[OFFSETS].len == 8 * (count + 1);
    for (int i = LANE; i < ARRAYS; i++) fit &= i == OFFSETS || i == AFTER || i == KIND || view[i].len == 8 * count;
    for (Int i = 0; fit && i < count; i++) if (lane[i] >= lanes) lanes = lane[i] + 1;
    if (fit)
        place = write_path(count, lanes, view[AFTER].len / 8, lane, view[OFFSETS].buf, view[AFTER].buf, view[END].buf,
                           view[KIND].buf, view[FOUND].buf);
    if (place == NO_MEMORY) PyErr_NoMemory();
    else if (place == NONE) PyErr_SetString(PyExc_ValueError, "the columns of the schedule do not belong together");
    else found = PyLong_FromLongLong(place);
    release_arrays(view, ARRAYS);
    return found;
}

static PyMethodDef methods[] = {
    {"path", path, METH_VARARGS, "Fill the end of an array with the critical path; return where it starts."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_path", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__path(void) { return PyModule_Create(&module); }
