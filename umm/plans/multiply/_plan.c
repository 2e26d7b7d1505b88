/* The op list, where its actions stand in a schedule and what each waits for, and the sums of C's replicas behind them.
 *
 * The rules are those of "Direct execution as dependencies" in docs/reference/schedule.md. What actions cost is reckoned
 * in one place, umm/cost.py: a book here keeps the prices of shapes, and asks for those it does not know.
 */
#include "umm/arrays.h"

enum { GET = 0, GEMM = 2, ACCUMULATE = 3, REDUCE = 4, BARRIER = 7 }; /* kinds, as in umm/schedules/table/details.py */
enum { NONE = -1 };

/* The arrays given, then those filled. Axes and tables are those of OpList, Axis and Layout. */
enum {
    RANK, M, N, K, M_FIRST, M_SECOND, N_FIRST, N_SECOND, K_FIRST, K_SECOND, M_EDGES, N_EDGES, K_EDGES,
    A_OWNERS, A_REPLICA, A_ELEMENTS, B_OWNERS, B_REPLICA, B_ELEMENTS, C_OWNERS, C_REPLICA, C_COL_EDGES,
    NUMBERS, OFFSETS, AFTER, OF_OPS, OF_GETS, SECONDS, KINDS, ARRAYS,
    GEMM_ROW = ARRAYS, UPDATE_OP, UPDATE_ROW, GET_ROW, ELEMENTS, PARTS /* of OF_OPS, and of OF_GETS */
};
/* The numbers given after them; then come the book of prices, or None, and the function that it asks. */
enum { RANKS, A_COLS, B_COLS, C_COLS, C_TILES, DEPTH, C_SLOTS, ADD_LANES, FIRST_ADD, ENGINES, LANES, SLICES, REUSE, SETTINGS };

/* Prices --------------------------------------------------------------------------------------------------------- */

/* What an action costs by its shape: m, n and k of a gemm, else elements, whether they lie apart, and NO_K less a kind. */
typedef struct { Int key[3], nbytes; double seconds; } Price;
typedef struct { Price *at; Int count, room; } Book; /* a hash table; a place is free where key[0] is 0 */

enum { NO_K = -1, MOST_PRICES = 1 << 20 };
static const char *const BOOK = "umm.plans.multiply._plan.Book";

static Price *place_of(const Book *book, const Int *key) {
    uint64_t hash = (uint64_t)key[0] * 0x9E3779B97F4A7C15u ^ (uint64_t)key[1] * 0xC2B2AE3D27D4EB4Fu ^
                    (uint64_t)key[2] * 0x165667B19E3779F9u;
    for (Int i = (Int)((hash ^ hash >> 32) & (uint64_t)(book->room - 1));; i = (i + 1) & (book->room - 1)) {
        Price *price = &book->at[i];
        if (!price->key[0] || (price->key[0] == key[0] && price->key[1] == key[1] && price->key[2] == key[2])) return price;
    }
}

static int write_down(Book *book, Price price) {
    if (2 * book->count >= book->room) {
        Book larger = {calloc((size_t)book->room, 2 * sizeof(Price)), book->count, 2 * book->room};
        if (!larger.at) return 0;
        for (Int i = 0; i < book->room; i++)
            if (book->at[i].key[0]) *place_of(&larger, book->at[i].key) = book->at[i];
        free(book->at);
        *book = larger;
    }
    Price *place = place_of(book, price.key);
    book->count += !place->key[0];
    *place = price;
    return 1;
}

static void close_book(PyObject *capsule) {
    Book *book = PyCapsule_GetPointer(capsule, BOOK);
    free(book->at);
    free(book);
}

static PyObject *open_book(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    Book *book = malloc(sizeof(Book));
    if (book) *book = (Book){calloc(256, sizeof(Price)), 0, 256};
    if (!book || !book->at) {
        free(book);
        return PyErr_NoMemory();
    }
    return PyCapsule_New(book, BOOK, close_book);
}

/* Shapes of one kind that the book does not know, to be asked for together. */
typedef struct { Int *key, count, room; } Asked;

static const Price *known(const Book *book, Asked *asked, Int x, Int y, Int z) {
    Int key[3] = {x, y, z}, *last = asked->key + 3 * (asked->count - 1);
    const Price *price = place_of(book, key);
    if (price->key[0]) return price;
    if (asked->count && !memcmp(last, key, sizeof key)) return NULL;
    if (asked->count == asked->room) {
        Int room = asked->room ? 2 * asked->room : 64, *more = realloc(asked->key, (size_t)room * sizeof key);
        if (!more) {
            asked->room = NONE; /* seen by `ask` */
            return NULL;
        }
        asked->key = more, asked->room = room;
    }
    if (asked->room > asked->count) memcpy(asked->key + 3 * asked->count++, key, sizeof key);
    return NULL;
}

/* Ask for the bytes and the seconds of shapes, and write them down. */
static int ask(Book *book, PyObject *function, int kind, const Asked *asked) {
    PyObject *prices = asked->room < 0 ? PyErr_NoMemory() : PyObject_CallFunction(function, "iy#", kind, asked->key, (Py_ssize_t)asked->count * 24);
    Py_buffer view[2];
    int status = 0;
    if (!prices) return 0;
    if (!take_arrays(prices, "ask", view, 2, 0, 2, 2, NULL)) {
        Py_DECREF(prices);
        return 0;
    }
    if (view[0].len != 8 * asked->count || view[1].len != 8 * asked->count) {
        PyErr_SetString(PyExc_ValueError, "there is a price for each shape");
        goto out;
    }
    for (Int i = 0; i < asked->count; i++) {
        Price price = {.nbytes = ((Int *)view[0].buf)[i], .seconds = ((double *)view[1].buf)[i]};
        memcpy(price.key, asked->key + 3 * i, sizeof price.key);
        if (!write_down(book, price)) {
            PyErr_NoMemory();
            goto out;
        }
    }
    status = 1;
out:
    release_arrays(view, 2);
    Py_DECREF(prices);
    return status;
}

/* Rows ----------------------------------------------------------------------------------------------------------- */

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

/* Write what each gemm, get and update costs. */
static int price(Book *book, PyObject *function, Int *const *in, Int count, Int gets, Int updates, Int rows_room) {
    static const int KIND[3] = {GEMM, GET, ACCUMULATE};
    double *seconds = (double *)in[SECONDS];
    const Int *src = in[NUMBERS] + 2 * rows_room, *dst = src + rows_room;
    Int *nbytes = in[NUMBERS] + 4 * rows_room;
    int status = 1;
    if (book->count > MOST_PRICES) memset(book->at, 0, (size_t)book->room * sizeof(Price)), book->count = 0;
    for (int missing = 1; missing && status;) {
        Asked asked[3] = {{0}};
        for (Int i = 0; i < count; i++) {
            const Int *m = in[M_EDGES] + in[M][i], *n = in[N_EDGES] + in[N][i], *k = in[K_EDGES] + in[K][i];
            const Price *price = known(book, &asked[0], m[1] - m[0], n[1] - n[0], k[1] - k[0]);
            if (price) seconds[in[GEMM_ROW][i]] = price->seconds;
        }
        for (Int i = 0; i < gets; i++) {
            const Price *price = known(book, &asked[1], in[ELEMENTS][i], 0, NO_K - GET);
            if (price) nbytes[in[GET_ROW][i]] = price->nbytes;
        }
        for (Int i = 0; i < updates; i++) {
            Int op = in[UPDATE_OP][i], row = in[UPDATE_ROW][i];
            const Int *m = in[M_EDGES] + in[M][op], *n = in[N_EDGES] + in[N][op];
            const Int *tile = in[C_COL_EDGES] + in[N_SECOND][in[N][op]];
            /* Adding to some columns of a tile is strided in memory and slower than adding to whole rows. */
            int apart = n[1] - n[0] < tile[1] - tile[0];
            const Price *price = known(book, &asked[2], (m[1] - m[0]) * (n[1] - n[0]), apart, NO_K - ACCUMULATE);
            if (price) nbytes[row] = price->nbytes, seconds[row] = src[row] == dst[row] ? price->seconds : 0.0;
        }
        missing = 0;
        for (int i = 0; i < 3; i++) {
            if (asked[i].count || asked[i].room) missing = 1, status = status && ask(book, function, KIND[i], &asked[i]);
            free(asked[i].key);
        }
    }
    return status;
}

/* A rank's ops, and how many of them, of its gets of A and of B and of its updates have been written. */
typedef struct { Int start, end, next, got[2], updates; int apart; } Rank;

static PyObject *plan(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[ARRAYS];
    Int set[SETTINGS];
    Int *in[PARTS];
    PyObject *found = NULL;
    Operand operands[2] = {{0}};
    Rank *ranks = NULL;
    Int *tile[3] = {0}, *slice[2] = {0}, *slice_elements[2] = {0}, *last_in_place = NULL, *active = NULL, *update_of = NULL;
    char *shared = NULL;

    if (!take_arrays(args, "plan", view, ARRAYS, SETTINGS + 2, NUMBERS, ARRAYS, "88888888888888888888888888881")) return NULL;
    PyObject *capsule = PyTuple_GetItem(args, ARRAYS + SETTINGS), *function = PyTuple_GetItem(args, ARRAYS + SETTINGS + 1);
    for (int i = 0; i < ARRAYS; i++) in[i] = view[i].buf;
    for (int i = 0; i < SETTINGS; i++) set[i] = PyLong_AsLongLong(PyTuple_GetItem(args, ARRAYS + i));
    if (PyErr_Occurred()) goto out;
    Int count = view[RANK].len / 8, p = set[RANKS], rows_room = view[KINDS].len;
    Int a_tiles = view[A_ELEMENTS].len / 8, b_tiles = view[B_ELEMENTS].len / 8, c_owners = view[C_OWNERS].len / 8;
    if (rows_room < 4 * count || view[AFTER].len < 8 * 8 * count || view[NUMBERS].len < 8 * 5 * rows_room ||
        view[OFFSETS].len < 8 * (rows_room + 1) || view[SECONDS].len < 8 * rows_room || view[OF_OPS].len < 24 * count ||
        view[OF_GETS].len < 32 * count) {
        PyErr_SetString(PyExc_ValueError, "the arrays to fill are too short");
        goto out;
    }
    for (int i = 0; i < 3; i++) in[GEMM_ROW + i] = in[OF_OPS] + i * count;
    for (int i = 0; i < 2; i++) in[GET_ROW + i] = in[OF_GETS] + i * 2 * count;
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
    Int *nbytes = dst + rows_room, *after = in[AFTER], *offsets = in[OFFSETS], *gemm_row = in[GEMM_ROW], depth = set[DEPTH];
    Int row = 0, waits = 0, running = 0;
    offsets[0] = 0;
    for (Int i = 0; i < c_owners; i++) last_in_place[i] = NONE;
    for (Int r = 0; r < p; r++) {
        ranks[r].apart = (!a->whole[r] && ranks[r].got[0]) || (!b->whole[r] && ranks[r].got[1]);
        ranks[r].got[0] = ranks[r].got[1] = 0;
        if (ranks[r].end) active[running++] = r;
    }
    while (running) {
        Int kept = 0;
        for (Int j = 0; j < running; j++) {
            Int r = active[j], first_lane = r * set[LANES];
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
                offsets[++row] = waits;
            }

            int added = shared[tile[2][op]];
            if (a->remote[op]) after[waits++] = in[GET_ROW][a->get[op]];
            if (b->remote[op]) after[waits++] = in[GET_ROW][a->gets + b->get[op]];
            if (added && of->updates >= set[C_SLOTS]) after[waits++] = in[UPDATE_ROW][update_of[op] - set[C_SLOTS]];
            if (!added && last_in_place[tile[2][op]] != NONE) after[waits++] = last_in_place[tile[2][op]];
            if (!added) last_in_place[tile[2][op]] = row;
            kinds[row] = GEMM, rank_of[row] = r, lane[row] = first_lane, src[row] = dst[row] = NONE, nbytes[row] = 0;
            gemm_row[op] = row;
            offsets[++row] = waits;

            if (added) {
                kinds[row] = ACCUMULATE, rank_of[row] = src[row] = r, dst[row] = in[C_OWNERS][tile[2][op]], nbytes[row] = 0;
                lane[row] = first_lane + set[FIRST_ADD] + of->updates++ % set[ADD_LANES];
                after[waits++] = row - 1;
                in[UPDATE_ROW][update_of[op]] = row;
                offsets[++row] = waits;
            }
            if (of->next < of->end) active[kept++] = r;
        }
        running = kept;
    }
    memset(in[SECONDS], 0, (size_t)row * sizeof(double));
    if (capsule != Py_None) {
        Book *book = PyCapsule_GetPointer(capsule, BOOK);
        if (!book || !price(book, function, in, count, a->gets + b->gets, updates, rows_room)) goto out;
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
    release_arrays(view, ARRAYS);
    return found;
}

/* Sums of replicas ------------------------------------------------------------------------------------------------ */

/* The columns of some rows, and those of a stage: rows that wait for a barrier before them where `after` is -1, else for
 * each other. Turns, if there are any, deal the lanes of accumulates out to the transfers of a rank. */
enum { ROW_KINDS, ROW_NUMBERS, ROW_OFFSETS, ROW_AFTER, ROW_SECONDS, COLUMNS };
enum { STAGE_TURNS = COLUMNS, STAGE_COLUMNS };
enum { JOIN_RANKS, JOIN_LANES, JOIN_FIRST_ADD, JOIN_ADD_LANES, JOIN_SETTINGS };
enum { MOST_STAGES = 2, MOST_JOINED = (2 + MOST_STAGES) * STAGE_COLUMNS };

/* Write rows behind each other: those given, then each stage behind a barrier, which waits for all that nothing else waits
 * for, and so for all before it. Return how many dependencies there are, and the bytes of all transfers. */
static PyObject *join(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[MOST_JOINED];
    Py_ssize_t arrays = PyTuple_Size(args) - JOIN_SETTINGS;
    Int set[JOIN_SETTINGS], *used = NULL;
    char *awaited = NULL;
    PyObject *found = NULL;
    if (arrays < 2 * COLUMNS || arrays > MOST_JOINED || (arrays - 2 * COLUMNS) % STAGE_COLUMNS) {
        PyErr_SetString(PyExc_TypeError, "join takes rows, room for all, stages and four numbers");
        return NULL;
    }
    if (!take_arrays(args, "join", view, arrays, JOIN_SETTINGS, COLUMNS, 2 * COLUMNS, "1888818888188888188888")) return NULL;
    for (int i = 0; i < JOIN_SETTINGS; i++) set[i] = PyLong_AsLongLong(PyTuple_GetItem(args, arrays + i));
    if (PyErr_Occurred()) goto out;
    const Py_buffer *to = view + COLUMNS;
    Int room = to[ROW_KINDS].len, after_room = to[ROW_AFTER].len / 8, row = 0, waits = 0;
    Int *number = to[ROW_NUMBERS].buf, *offsets = to[ROW_OFFSETS].buf, *after = to[ROW_AFTER].buf;
    int8_t *kind = to[ROW_KINDS].buf;
    double *seconds = to[ROW_SECONDS].buf, moved = 0.0;
    used = calloc((size_t)set[JOIN_RANKS] + 1, sizeof(Int)), awaited = calloc((size_t)room + 1, 1);
    if (!used || !awaited) {
        PyErr_NoMemory();
        goto out;
    }
    offsets[0] = 0;
    for (const Py_buffer *from = view; from < view + arrays; from = from == view ? view + 2 * COLUMNS : from + STAGE_COLUMNS) {
        const int8_t *kinds = from[ROW_KINDS].buf;
        const Int *numbers = from[ROW_NUMBERS].buf, *ends = from[ROW_OFFSETS].buf, *before = from[ROW_AFTER].buf;
        Int count = from[ROW_KINDS].len, stride = from[ROW_NUMBERS].len / 40, staged = from != view, first = row + staged;
        if (first + count > room || waits + (staged ? row : 0) + ends[count] > after_room) {
            PyErr_SetString(PyExc_ValueError, "the arrays to fill are too short");
            goto out;
        }
        if (staged) {
            for (Int i = 0; i < row; i++) if (!awaited[i]) after[waits++] = i;
            for (Int i = 0; i < row; i++) awaited[i] = 1;
            kind[row] = BARRIER, seconds[row] = 0.0, offsets[row + 1] = waits;
            for (int x = 0; x < 5; x++) number[x * room + row] = x < 4 ? NONE : 0;
        }
        for (int x = 0; x < 5; x++) memcpy(number + x * room + first, numbers + x * stride, (size_t)count * sizeof(Int));
        memcpy(kind + first, kinds, (size_t)count);
        memcpy(seconds + first, from[ROW_SECONDS].buf, (size_t)count * sizeof(double));
        for (Int i = 0; i < ends[count]; i++) awaited[after[waits + i] = before[i] + first] = 1;
        for (Int i = 0; i < count; i++) offsets[first + i + 1] = waits + ends[i + 1];
        waits += ends[count], row = first + count;
        const Int *turns = staged && from[STAGE_TURNS].len ? from[STAGE_TURNS].buf : NULL, *src = number + 2 * room;
        for (Int i = 0; turns && i < count; i++)
            number[room + first + i] = src[first + i] * set[JOIN_LANES] + set[JOIN_FIRST_ADD] + (used[src[first + i]] + turns[i]) % set[JOIN_ADD_LANES];
        for (Int i = first; i < row; i++) {
            if (kind[i] == ACCUMULATE || kind[i] == REDUCE) used[number[i]]++;
            moved += (double)number[4 * room + i];
        }
    }
    found = Py_BuildValue("Lnd", (long long)row, (Py_ssize_t)waits, moved);
out:
    free(used), free(awaited);
    release_arrays(view, arrays);
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
    PyObject *found = NULL;
    if (!take_arrays(args, "ops", view, OP_ARRAYS, 1, OP_RANK, OP_ARRAYS, NULL)) return NULL;
    for (int i = 0; i < OP_ARRAYS; i++) in[i] = view[i].buf;
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
    release_arrays(view, OP_ARRAYS);
    return found;
}

/* How many ops there are in all; the arrays are ROW, COL, REPLICA, ROWS, COLS and SHARES. */
static PyObject *count(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[6];
    Int *in[6];
    double total = 0.0; /* which may be more than 64 bits count */
    if (!take_arrays(args, "count", view, 6, 0, 6, 6, NULL)) return NULL;
    for (int i = 0; i < 6; i++) in[i] = view[i].buf;
    for (Int t = 0; t < view[0].len / 8; t++) {
        const Int *row = in[3] + in[0][t], *col = in[4] + in[1][t], *share = in[5] + in[2][t];
        total += (double)(row[1] - row[0]) * (double)(col[1] - col[0]) * (double)(share[1] - share[0]);
    }
    release_arrays(view, 6);
    return PyFloat_FromDouble(total);
}

static PyMethodDef methods[] = {
    {"book", open_book, METH_NOARGS, "Return a book of prices."},
    {"count", count, METH_VARARGS, "Return how many ops there are."},
    {"join", join, METH_VARARGS, "Write rows and stages behind each other; return how many rows and waits, and the bytes moved."},
    {"ops", ops, METH_VARARGS, "Fill the rank and the segments of each op; return how many there are."},
    {"plan", plan, METH_VARARGS, "Fill the columns of an op list's actions; return how many rows, waits, gets of A, gets and updates."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_plan", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plan(void) { return PyModule_Create(&module); }
