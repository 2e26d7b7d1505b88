/* The op list, and where its actions stand in a schedule and what each waits for.
 *
 * The rules are those of "Direct execution as dependencies" in docs/reference/schedule.md. There are only whole numbers
 * here: what actions cost is reckoned in one place, direct.lower.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* one wheel for every Python from 3.11 on */
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

typedef int64_t Int;

enum { GET = 0, GEMM = 2, ACCUMULATE = 3 }; /* kinds, as in umm/schedules/table/details.py */
enum { NONE = -1 };

/* The arrays given, then those filled. Axes and tables are those of OpList, Axis and Layout. */
enum {
    RANK, M, N, K, M_FIRST, M_SECOND, N_FIRST, N_SECOND, K_FIRST, K_SECOND, M_EDGES, N_EDGES, K_EDGES,
    A_OWNERS, A_REPLICA, A_ELEMENTS, B_OWNERS, B_REPLICA, B_ELEMENTS, C_OWNERS, C_REPLICA,
    NUMBERS, WAITS, AFTER, GEMM_ROW, GET_ROW, ELEMENTS, UPDATE_OP, UPDATE_ROW, KINDS, ARRAYS
};
/* The numbers given after them. */
enum { RANKS, A_COLS, B_COLS, C_COLS, C_TILES, DEPTH, C_SLOTS, ADD_LANES, FIRST_ADD, ENGINES, LANES, SLICES, REUSE, SETTINGS };

/* One operand, A or B, as the ops read it: op i's is of tile[i], which is not its rank's own where remote[i]. */
typedef struct {
    Int *src, *size, *get;   /* of each op: owner, elements, and the get that serves it */
    char *remote, *fetch;
    Int *op, gets;           /* of each get: its op; how many there are */
    char *whole;             /* of each rank: whether it gets whole tiles */
} Operand;

static int make(Operand *x, Int count, Int ranks) {
    size_t n = (size_t)(count ? count : 1);
    x->src = malloc(n * sizeof(Int)), x->size = malloc(n * sizeof(Int)), x->get = malloc(n * sizeof(Int));
    x->remote = malloc(n), x->fetch = malloc(n), x->op = malloc(n * sizeof(Int)), x->whole = malloc((size_t)ranks + 1);
    return x->src && x->size && x->get && x->remote && x->fetch && x->op && x->whole;
}

static void unmake(Operand *x) {
    free(x->src), free(x->size), free(x->get), free(x->remote), free(x->fetch), free(x->op), free(x->whole);
}

/* Find which ops of a rank get their tile, or their slice, and how much; return how many. What the op before has read
 * is there already. Where slices are asked for, an operand of which they would be more in all comes by tiles. */
static Int find_gets(Operand *x, Int start, Int end, const Int *tile, const Int *slice, const Int *tile_elements,
                      const Int *slice_elements, int slices, int reuse, Int rank) {
    double by_tiles = 0.0, by_slices = 0.0;
    Int before = x->gets;
    for (Int i = start; i < end; i++) {
        int again = reuse && i > start;
        if (x->remote[i] && !(again && tile[i] == tile[i - 1])) by_tiles += (double)tile_elements[tile[i]];
        if (x->remote[i] && !(again && slice[i] == slice[i - 1])) by_slices += (double)slice_elements[i];
    }
    int whole = x->whole[rank] = (char)(!slices || by_slices > by_tiles);
    const Int *range = whole ? tile : slice;
    for (Int i = start; i < end; i++) {
        x->fetch[i] = x->remote[i] && !(reuse && i > start && range[i] == range[i - 1]);
        x->size[i] = whole ? tile_elements[tile[i]] : slice_elements[i];
        if (x->fetch[i]) x->op[x->gets++] = i;
        x->get[i] = x->gets - 1;
    }
    return x->gets - before;
}

/* A rank's ops, and how many of them, of its gets of A and of B and of its updates have been written. */
typedef struct { Int start, end, next, got[2], updates; int apart; } Rank;

static PyObject *plan(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[ARRAYS];
    Int set[SETTINGS];
    Int *in[ARRAYS];
    Py_ssize_t taken = 0;
    PyObject *found = NULL;
    Operand operands[2] = {{0}};
    Rank *ranks = NULL;
    Int *tile[3] = {0}, *slice[2] = {0}, *slice_elements[2] = {0}, *last_in_place = NULL, *active = NULL, *update_of = NULL;
    char *shared = NULL;

    if (PyTuple_Size(args) != ARRAYS + SETTINGS) {
        PyErr_Format(PyExc_TypeError, "plan takes %d arguments", ARRAYS + SETTINGS);
        return NULL;
    }
    for (; taken < ARRAYS; taken++) {
        int flags = taken >= NUMBERS ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS;
        if (PyObject_GetBuffer(PyTuple_GetItem(args, taken), &view[taken], flags)) goto out;
        in[taken] = view[taken].buf;
        if (view[taken].itemsize != (taken == KINDS ? 1 : 8)) {
            PyErr_Format(PyExc_TypeError, "array %zd has items of %zd bytes", taken, view[taken].itemsize);
            taken++;
            goto out;
        }
    }
    for (int i = 0; i < SETTINGS; i++) set[i] = PyLong_AsLongLong(PyTuple_GetItem(args, ARRAYS + i));
    if (PyErr_Occurred()) goto out;
    Int count = view[RANK].len / 8, p = set[RANKS], rows_room = view[KINDS].len;
    Int a_tiles = view[A_ELEMENTS].len / 8, b_tiles = view[B_ELEMENTS].len / 8, c_owners = view[C_OWNERS].len / 8;
    if (rows_room < 4 * count || view[AFTER].len < 8 * 8 * count || view[NUMBERS].len < 8 * 5 * rows_room) {
        PyErr_SetString(PyExc_ValueError, "the arrays to fill are too short");
        goto out;
    }
    size_t n = (size_t)(count ? count : 1) * sizeof(Int);
    ranks = calloc((size_t)p + 1, sizeof(Rank));
    for (int x = 0; x < 3; x++) tile[x] = malloc(n);
    for (int x = 0; x < 2; x++) slice[x] = malloc(n), slice_elements[x] = malloc(n);
    last_in_place = malloc(((size_t)c_owners + 1) * sizeof(Int));
    active = malloc(((size_t)p + 1) * sizeof(Int)), update_of = malloc(n), shared = calloc((size_t)c_owners + 1, 1);
    int made = make(&operands[0], count, p) && make(&operands[1], count, p);
    if (!made || !ranks || !tile[0] || !tile[1] || !tile[2] || !slice[0] || !slice[1] || !slice_elements[0] ||
        !slice_elements[1] || !last_in_place || !active || !update_of || !shared) {
        PyErr_NoMemory();
        goto out;
    }

    /* Tiles, slices and owners of what each op reads and adds to. */
    Operand *a = &operands[0], *b = &operands[1];
    Int k_edges = view[K_EDGES].len / 8, n_edges = view[N_EDGES].len / 8;
    for (Int i = 0; i < count; i++) {
        Int r = in[RANK][i], m = in[M][i], nn = in[N][i], k = in[K][i];
        Int rows = in[M_EDGES][m + 1] - in[M_EDGES][m], cols = in[N_EDGES][nn + 1] - in[N_EDGES][nn];
        Int sums = in[K_EDGES][k + 1] - in[K_EDGES][k];
        tile[0][i] = in[M_FIRST][m] * set[A_COLS] + in[K_FIRST][k];
        tile[1][i] = in[K_SECOND][k] * set[B_COLS] + in[N_FIRST][nn];
        tile[2][i] = in[C_REPLICA][r] * set[C_TILES] + in[M_SECOND][m] * set[C_COLS] + in[N_SECOND][nn];
        slice[0][i] = m * k_edges + k, slice[1][i] = k * n_edges + nn;
        slice_elements[0][i] = rows * sums, slice_elements[1][i] = sums * cols;
        a->src[i] = in[A_OWNERS][in[A_REPLICA][r] * a_tiles + tile[0][i]];
        b->src[i] = in[B_OWNERS][in[B_REPLICA][r] * b_tiles + tile[1][i]];
        a->remote[i] = a->src[i] != r, b->remote[i] = b->src[i] != r;
        if (in[C_OWNERS][tile[2][i]] != r) shared[tile[2][i]] = 1;
        if (!ranks[r].end) ranks[r].start = ranks[r].next = i;
        ranks[r].end = i + 1;
    }
    for (Int r = 0; r < p; r++)
        for (int x = 0; x < 2; x++)
            ranks[r].got[x] = find_gets(&operands[x], ranks[r].start, ranks[r].end, tile[x], slice[x], in[x ? B_ELEMENTS : A_ELEMENTS],
                      slice_elements[x], (int)set[SLICES], (int)set[REUSE], r);
    Int updates = 0;
    for (Int i = 0; i < count; i++) {
        update_of[i] = updates;
        if (shared[tile[2][i]]) in[UPDATE_OP][updates++] = i;
    }

    /* Rows: op 0 of every rank, then op 1 of every rank, …; within an op get A, get B, gemm, accumulate. */
    int8_t *kinds = view[KINDS].buf;
    Int *rank_of = in[NUMBERS], *lane = rank_of + rows_room, *src = lane + rows_room, *dst = src + rows_room;
    Int *nbytes = dst + rows_room, *after = in[AFTER], *gemm_row = in[GEMM_ROW], depth = set[DEPTH];
    Int row = 0, waits = 0, running = 0;
    for (Int i = 0; i < c_owners; i++) last_in_place[i] = NONE;
    for (Int r = 0; r < p; r++) {
        ranks[r].apart = (!a->whole[r] && ranks[r].got[0]) || (!b->whole[r] && ranks[r].got[1]);
        ranks[r].got[0] = ranks[r].got[1] = 0;
        if (ranks[r].end) active[running++] = r;
    }
    while (running) {
        Int kept = 0;
        for (Int j = 0; j < running; j++) {
            Int r = active[j], first_lane = r * set[LANES], before = waits;
            Rank *of = &ranks[r];
            Int op = of->next++, number = op - of->start, turn = of->got[0] + of->got[1];
            for (int x = 0; x < 2; x++) {
                Operand *from = &operands[x];
                if (!from->fetch[op]) continue;
                Int get = from->get[op], own_turn = of->got[x]++, place = get + (x ? a->gets : 0);
                if (number >= depth) after[waits++] = gemm_row[op - depth];
                /* It fills a slot again, after all that read that. In lane order the last reader would be enough, but
                 * dependencies alone must make a schedule right. */
                if (own_turn >= depth) {
                    Int reader = from->op[get - depth];
                    do {
                        if (reader != op - depth) after[waits++] = gemm_row[reader];
                        reader++;
                    } while (reader < of->end && from->remote[reader] && !from->fetch[reader]);
                }
                kinds[row] = GET, rank_of[row] = dst[row] = r, src[row] = from->src[op], nbytes[row] = 0;
                /* All gets of a rank take turns on its copy lanes; where some are slices those of A and of B by themselves,
                 * B's a lane further: one operand's may all be large, and would all come to the same lane. */
                lane[row] = first_lane + 1 + (of->apart ? own_turn + x : turn) % set[ENGINES];
                turn++;
                in[GET_ROW][place] = row, in[ELEMENTS][place] = from->size[op];
                in[WAITS][row++] = waits - before, before = waits;
            }

            int added = shared[tile[2][op]];
            if (a->remote[op]) after[waits++] = in[GET_ROW][a->get[op]];
            if (b->remote[op]) after[waits++] = in[GET_ROW][a->gets + b->get[op]];
            if (added && of->updates >= set[C_SLOTS]) after[waits++] = in[UPDATE_ROW][update_of[op] - set[C_SLOTS]];
            if (!added && last_in_place[tile[2][op]] != NONE) after[waits++] = last_in_place[tile[2][op]];
            if (!added) last_in_place[tile[2][op]] = row;
            kinds[row] = GEMM, rank_of[row] = r, lane[row] = first_lane, src[row] = dst[row] = NONE, nbytes[row] = 0;
            gemm_row[op] = row;
            in[WAITS][row++] = waits - before, before = waits;

            if (added) {
                kinds[row] = ACCUMULATE, rank_of[row] = src[row] = r, dst[row] = in[C_OWNERS][tile[2][op]], nbytes[row] = 0;
                lane[row] = first_lane + set[FIRST_ADD] + of->updates++ % set[ADD_LANES];
                after[waits++] = row - 1;
                in[UPDATE_ROW][update_of[op]] = row;
                in[WAITS][row++] = 1;
            }
            if (of->next < of->end) active[kept++] = r;
        }
        running = kept;
    }
    found = PyTuple_New(5);
    if (found) {
        Int counts[5] = {row, waits, a->gets, a->gets + b->gets, updates};
        for (int i = 0; i < 5; i++) PyTuple_SetItem(found, i, PyLong_FromLongLong(counts[i]));
    }
out:
    for (int x = 0; x < 3; x++) free(tile[x]);
    for (int x = 0; x < 2; x++) free(slice[x]), free(slice_elements[x]), unmake(&operands[x]);
    free(ranks), free(last_in_place), free(active), free(update_of), free(shared);
    while (taken > 0) PyBuffer_Release(&view[--taken]);
    return found;
}

/* Ops ------------------------------------------------------------------------------------------------------------- */

/* The arrays given to ops, then those filled: a tile of the stationary matrix each, and what each op multiplies. */
enum { OWNER, REPLICA, ROW, COL, SHIFT, ROWS, COLS, SHARES, GROUPS, OP_RANK, OP_M, OP_N, OP_K, OP_ARRAYS };

/* Where the ops of a tile go: they follow each other from `start` on, the list turned so that it starts at `shift`. */
typedef struct { Int *m, *n, *k, start, size, shift, next; } List;

static void put_op(List *list, Int m, Int n, Int k) {
    Int place = list->next++ - list->shift;
    place = list->start + (place < 0 ? place + list->size : place);
    list->m[place] = m, list->n[place] = n, list->k[place] = k;
}

/* Fill the ops of some tiles of the stationary matrix: algorithms 1 and 2 of the paper. The second walks k inside A's
 * rows, but outside C's. */
static PyObject *ops(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[OP_ARRAYS];
    Int *in[OP_ARRAYS], written = 0;
    Py_ssize_t taken = 0;
    PyObject *found = NULL;
    if (PyTuple_Size(args) != OP_ARRAYS + 1) {
        PyErr_Format(PyExc_TypeError, "ops takes %d arguments", OP_ARRAYS + 1);
        return NULL;
    }
    for (; taken < OP_ARRAYS; taken++) {
        int flags = taken >= OP_RANK ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS;
        if (PyObject_GetBuffer(PyTuple_GetItem(args, taken), &view[taken], flags)) goto out;
        in[taken] = view[taken].buf;
    }
    Int stationary = PyLong_AsLongLong(PyTuple_GetItem(args, OP_ARRAYS)), tiles = view[OWNER].len / 8;
    Int room = view[OP_RANK].len / 8, groups = view[GROUPS].len / 8;
    for (Int t = 0; t < tiles; t++) {
        Int i = in[ROW][t], j = in[COL][t], r = in[REPLICA][t];
        Int row = in[ROWS][i], row_end = in[ROWS][i + 1], col = in[COLS][j], col_end = in[COLS][j + 1];
        Int share = in[SHARES][r], share_end = in[SHARES][r + 1];
        Int size = (row_end - row) * (col_end - col) * (share_end - share);
        if (written + size > room) {
            PyErr_SetString(PyExc_ValueError, "the arrays to fill are too short");
            goto out;
        }
        List list = {in[OP_M], in[OP_N], in[OP_K], written, size, size ? in[SHIFT][t] % size : 0, 0};
        if (stationary == 'C') {
            for (Int m = row; m < row_end; m++)
                for (Int k = share; k < share_end; k++)
                    for (Int n = col; n < col_end; n++) put_op(&list, m, n, k);
        } else if (stationary == 'B') { /* for each tile row of A, all k of the tile */
            for (Int g = 0; g + 1 < groups; g++) {
                Int start = in[GROUPS][g] > share ? in[GROUPS][g] : share;
                Int end = in[GROUPS][g + 1] < share_end ? in[GROUPS][g + 1] : share_end;
                for (Int k = row; start < end && k < row_end; k++)
                    for (Int m = start; m < end; m++)
                        for (Int n = col; n < col_end; n++) put_op(&list, m, n, k);
            }
        } else { /* for each k of the tile and each tile column of B, all m */
            for (Int k = col; k < col_end; k++)
                for (Int g = 0; g + 1 < groups; g++) {
                    Int start = in[GROUPS][g] > share ? in[GROUPS][g] : share;
                    Int end = in[GROUPS][g + 1] < share_end ? in[GROUPS][g + 1] : share_end;
                    for (Int m = row; start < end && m < row_end; m++)
                        for (Int n = start; n < end; n++) put_op(&list, m, n, k);
                }
        }
        for (Int x = 0; x < size; x++) in[OP_RANK][written++] = in[OWNER][t];
    }
    found = PyLong_FromLongLong(written);
out:
    while (taken > 0) PyBuffer_Release(&view[--taken]);
    return found;
}

static PyMethodDef methods[] = {
    {"ops", ops, METH_VARARGS, "Fill the rank and the segments of each op; return how many there are."},
    {"plan", plan, METH_VARARGS, "Fill the columns of an op list's actions; return how many rows, waits, gets of A, gets and updates."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_plan", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plan(void) { return PyModule_Create(&module); }
