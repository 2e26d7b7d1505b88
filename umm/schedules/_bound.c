/* The bound of one phase of a schedule, between two barriers: the largest of three.
 *
 * Every action takes at least the time it takes alone, so the longest path through dependencies and lanes is a bound
 * (follow_paths). A link has to carry all its bytes one after another, and a shared engine its gemms: of the jobs that
 * can start at some time or later, that time, all their work and the shortest of their tails, which is the one-machine
 * bound of scheduling theory (count_work). A rank whose transfers slow its gemms down makes up for that (slow_down).
 * bound.py adds phases up, and knows the routes.
 */
#include "umm/arrays.h"
#include <math.h>

enum { GEMM = 2 }; /* a kind, as in umm/schedules/table/details.py */
enum { RANK, LANE, OFFSETS, AFTER, ALONE, LATENCY, NBYTES, ROUTE, KIND, FIRSTS, LINKS, BANDWIDTH, OF_LANE, ENGINE, LOSS, ARRAYS };
enum { DONE, UNFIT, NO_MEMORY };

typedef struct {
    Int first, count, lanes, links, ranks, engines; /* actions before the phase, and in it */
    const Int *rank, *lane, *offsets, *after, *nbytes, *route, *firsts, *crossed, *of_lane, *engine;
    const double *alone, *latency, *bandwidth, *loss;
    const int8_t *kind;
    double *start, *tail, longest;
} Phase;

typedef struct {
    double release, work, tail;
    Int job;
} Job;

static double larger(double x, double y) { return x > y ? x : y; }
static double smaller(double x, double y) { return x < y ? x : y; }

/* Heads and tails along dependencies and lanes: when an action can start at the earliest, and what must follow it. */
static int follow_paths(Phase *of) {
    Int *last = malloc((size_t)(of->lanes + of->count + 1) * sizeof(Int)), *earlier = last + of->lanes;
    double *finish = malloc(((size_t)of->count + 1) * sizeof(double));
    int ended = last && finish ? DONE : NO_MEMORY;
    for (Int i = 0; !ended && i < of->lanes; i++) last[i] = -1;
    for (Int i = 0; !ended && i < of->count; i++) {
        Int row = of->first + i, lane = of->lane[row];
        earlier[i] = lane < 0 ? -1 : last[lane];
        if (lane >= 0) last[lane] = i;
        double begin = earlier[i] < 0 ? 0.0 : finish[earlier[i]];
        for (Int x = of->offsets[row]; x < of->offsets[row + 1]; x++) {
            Int before = of->after[x] - of->first;
            if (before >= i) ended = UNFIT;
            else if (before >= 0) begin = larger(finish[before], begin);
        }
        of->start[i] = begin;
        of->tail[i] = 0.0;
        finish[i] = begin + of->alone[row];
        of->longest = larger(finish[i], of->longest);
    }
    for (Int i = of->count - 1; !ended && i >= 0; i--) {
        Int row = of->first + i;
        double follows = of->tail[i] + of->alone[row];
        if (earlier[i] >= 0) of->tail[earlier[i]] = larger(follows, of->tail[earlier[i]]);
        for (Int x = of->offsets[row]; x < of->offsets[row + 1]; x++) {
            Int before = of->after[x] - of->first;
            if (before >= 0) of->tail[before] = larger(follows, of->tail[before]);
        }
    }
    free(last);
    free(finish);
    return ended;
}

static int by_falling_release(const void *x, const void *y) {
    const Job *a = x, *b = y;
    if (a->release != b->release) return a->release < b->release ? 1 : -1;
    return (a->job > b->job) - (a->job < b->job);
}

/* Each link's and engine's own work: over its jobs by falling release, the largest release + work so far + least tail. */
static int count_work(Phase *of) {
    Int resources = of->links + of->engines, total = 0;
    Int *place = calloc((size_t)resources + 2, sizeof(Int));
    if (!place) return NO_MEMORY;
    for (Int i = of->first; i < of->first + of->count; i++) {
        if (of->route[i] >= 0)
            for (Int x = of->firsts[of->route[i]]; x < of->firsts[of->route[i] + 1]; x++) place[of->crossed[x] + 2]++;
        if (of->kind[i] == GEMM) place[of->links + of->engine[of->lane[i]] + 2]++;
    }
    for (Int x = 2; x < resources + 2; x++) total += place[x], place[x] = total;
    Job *jobs = malloc(((size_t)total + 1) * sizeof(Job));
    if (!jobs) {
        free(place);
        return NO_MEMORY;
    }
    for (Int i = 0, row = of->first; i < of->count; i++, row++) {
        if (of->route[row] >= 0)
            for (Int x = of->firsts[of->route[row]]; x < of->firsts[of->route[row] + 1]; x++) {
                Int link = of->crossed[x], at = place[link + 1]++;
                jobs[at] = (Job){of->start[i] + of->latency[row], (double)of->nbytes[row] / of->bandwidth[link],
                                 of->tail[i], at};
            }
        if (of->kind[row] == GEMM) {
            Int at = place[of->links + of->engine[of->lane[row]] + 1]++;
            jobs[at] = (Job){of->start[i], of->alone[row], of->tail[i], at};
        }
    }
    for (Int x = 0; x < resources; x++) {
        double load = 0.0, least = INFINITY;
        qsort(jobs + place[x], (size_t)(place[x + 1] - place[x]), sizeof(Job), by_falling_release);
        for (Int i = place[x]; i < place[x + 1]; i++) {
            load += jobs[i].work;
            least = smaller(jobs[i].tail, least);
            of->longest = larger(jobs[i].release + load + least, of->longest);
        }
    }
    free(place);
    free(jobs);
    return DONE;
}

/* The rank whose gemms its own transfers slow down most: _slowed. */
static int slow_down(Phase *of, Int kinds) {
    Int *owner = malloc((size_t)(of->engines + 1) * sizeof(Int));
    double *numbers = calloc((size_t)(4 * of->ranks + of->lanes) + 1, sizeof(double));
    double *compute = numbers, *head = compute + of->ranks, *tail = head + of->ranks, *busiest = tail + of->ranks,
           *busy = busiest + of->ranks;
    int ended = owner && numbers ? DONE : NO_MEMORY, apart = 1;
    for (Int i = 0; !ended && i < of->engines; i++) owner[i] = -1;
    for (Int i = 0; !ended && i < of->ranks; i++) head[i] = tail[i] = INFINITY;
    for (Int i = 0, row = of->first; !ended && i < of->count; i++, row++) {
        if (of->kind[row] != GEMM) continue;
        Int rank = of->rank[row], engine = of->engine[of->lane[row]];
        apart &= owner[engine] < 0 || owner[engine] == rank;
        owner[engine] = rank;
        compute[rank] += of->alone[row];
        head[rank] = smaller(of->start[i], head[rank]);
        tail[rank] = smaller(of->tail[i], tail[rank]);
    }
    for (Int kind = 0; !ended && apart && kind < kinds; kind++) {
        double loss = of->loss[kind];
        int moves = 0;
        if (loss == 0.0) continue;
        for (Int x = 0; x < of->lanes; x++) busy[x] = 0.0;
        for (Int x = 0; x < of->ranks; x++) busiest[x] = 0.0;
        for (Int row = of->first; row < of->first + of->count; row++) {
            if (of->kind[row] != kind || of->route[row] < 0) continue;
            if (of->lane[row] < 0) ended = UNFIT;
            else busy[of->lane[row]] += of->alone[row], moves = 1;
        }
        if (ended || !moves) continue;
        for (Int x = 0; x < of->lanes; x++) busiest[of->of_lane[x]] = larger(busy[x], busiest[of->of_lane[x]]);
        for (Int x = 0; x < of->ranks; x++)
            if (compute[x] > 0.0)
                of->longest =
                    larger(compute[x] + loss * busiest[x] + (1 - loss) * (head[x] + tail[x]), of->longest);
    }
    free(owner);
    free(numbers);
    return ended;
}

/* Whether the columns belong together, as far as what is looked up by them goes. */
static int fits(Phase *of, Int rows, Int waits, Int routes, Int crossed) {
    int fit = of->first >= 0 && of->count >= 0 && of->first + of->count <= rows && of->ranks >= 0;
    for (Int x = 0; fit && x < routes; x++) fit = of->firsts[x] >= 0 && of->firsts[x] <= of->firsts[x + 1];
    fit = fit && of->firsts[routes] <= crossed;
    for (Int x = 0; fit && x < crossed; x++) fit = of->crossed[x] >= 0 && of->crossed[x] < of->links;
    for (Int x = 0; fit && x < of->lanes; x++) {
        fit = of->of_lane[x] >= 0 && of->of_lane[x] < of->ranks;
        if (of->engine[x] >= of->engines) of->engines = of->engine[x] + 1;
    }
    for (Int i = of->first; fit && i < of->first + of->count; i++) {
        fit = of->lane[i] < of->lanes && of->route[i] < routes && of->rank[i] >= 0 && of->rank[i] < of->ranks &&
              of->offsets[i] >= 0 && of->offsets[i] <= of->offsets[i + 1] && of->offsets[i + 1] <= waits;
        if (fit && of->kind[i] == GEMM) fit = of->lane[i] >= 0 && of->engine[of->lane[i]] >= 0;
    }
    return fit;
}

static PyObject *bound(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[ARRAYS];
    PyObject *found = NULL;
    if (!take_arrays(args, "bound", view, ARRAYS, 3, ARRAYS, ARRAYS, "888888881888888")) return NULL;
    Int first = PyLong_AsLongLong(PyTuple_GetItem(args, ARRAYS)), stop = PyLong_AsLongLong(PyTuple_GetItem(args, ARRAYS + 1)),
        ranks = PyLong_AsLongLong(PyTuple_GetItem(args, ARRAYS + 2)), rows = view[KIND].len;
    if (PyErr_Occurred()) goto out;
    Phase of = {
        first, stop - first, view[OF_LANE].len / 8, view[BANDWIDTH].len / 8, ranks, 0, view[RANK].buf, view[LANE].buf,
        view[OFFSETS].buf, view[AFTER].buf, view[NBYTES].buf, view[ROUTE].buf, view[FIRSTS].buf, view[LINKS].buf,
        view[OF_LANE].buf, view[ENGINE].buf, view[ALONE].buf, view[LATENCY].buf, view[BANDWIDTH].buf, view[LOSS].buf,
        view[KIND].buf, NULL, NULL, 0.0,
    };
    int fit = view[OFFSETS].len == 8 * (rows + 1) && view[ENGINE].len == view[OF_LANE].len && view[FIRSTS].len >= 8;
    for (int i = RANK; i < KIND; i++) fit &= i == OFFSETS || i == AFTER || view[i].len == 8 * rows;
    int ended = fit && fits(&of, rows, view[AFTER].len / 8, view[FIRSTS].len / 8 - 1, view[LINKS].len / 8) ? DONE : UNFIT;
    if (!ended) {
        of.start = malloc(((size_t)of.count + 1) * 2 * sizeof(double));
        of.tail = of.start + of.count;
        ended = of.start ? follow_paths(&of) : NO_MEMORY;
        if (!ended) ended = count_work(&of);
        if (!ended) ended = slow_down(&of, view[LOSS].len / 8);
        free(of.start);
    }
    if (ended == NO_MEMORY) PyErr_NoMemory();
    else if (ended == UNFIT) PyErr_SetString(PyExc_ValueError, "the columns of the schedule do not belong together");
    else found = PyFloat_FromDouble(of.longest);
out:
    release_arrays(view, ARRAYS);
    return found;
}

static PyMethodDef methods[] = {
    {"bound", bound, METH_VARARGS, "Return what a phase of a schedule takes at least: see bound.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_bound", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__bound(void) { return PyModule_Create(&module); }
