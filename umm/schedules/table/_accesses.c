/* The rows of a schedule in the making, and what each waits for, by the memory that they touch.
 *
 * Two accesses conflict where they touch the same memory, unless both read or both add. An access is forgotten once a
 * write covers it: whatever conflicts with it later conflicts with that write too. Likewise, once a pool slot holds
 * another buffer, whatever touches that comes after all that touched the buffer before it; so of a slot only what it
 * holds and what it held before are kept. tests/schedules/test_accesses.py compares with every earlier access.
 */
#include "umm/arrays.h"

enum { READ, WRITE, ADD }; /* as in accesses.py */
enum { NONE = -1, FEW = 16 };

typedef struct { Int *at, size, room; } List;

static int reserve(List *list, Int more) {
    if (list->size + more <= list->room) return 1;
    Int room = list->room ? 2 * list->room : 4;
    while (room < list->size + more) room *= 2;
    Int *at = realloc(list->at, (size_t)room * sizeof(Int));
    if (!at) return 0;
    list->at = at, list->room = room;
    return 1;
}

static int push(List *list, Int value) {
    if (!reserve(list, 1)) return 0;
    list->at[list->size++] = value;
    return 1;
}

static int extend(List *list, const List *more) {
    if (!reserve(list, more->size)) return 0;
    if (more->size) memcpy(list->at + list->size, more->at, (size_t)more->size * sizeof(Int));
    list->size += more->size;
    return 1;
}

/* Pieces and places ------------------------------------------------------------------------------------------------ */

typedef struct { Int top, bottom, left, right; } Rectangle;

/* A rectangle of a buffer that has been touched, and by number the others that it meets and covers: found once, when it
 * is new, for gets and gemms touch the same rectangles again and again. `write` has written all of it, `reads` and `adds`
 * are those since, for the write comes before them anyway. */
typedef struct { Rectangle of; Int write; List reads, adds, meeting, covered; } Piece;

/* An owned tile, or what a pool slot holds at a time. Once there are many pieces, `by_row` and `by_col` have them by their
 * first row and column, except those in `large` that cover many others, and `hash` finds one by its rectangle. */
typedef struct Place {
    Int buffer, count, room;
    Piece *pieces;
    struct Place *before;
    List was[3], by_row, by_col, large;
    char known[3];
    Int *hash, slots, tallest, widest;
} Place;

static void free_place(Place *place) {
    if (!place) return;
    for (Int i = 0; i < place->count; i++) {
        Piece *x = &place->pieces[i];
        free(x->reads.at), free(x->adds.at), free(x->meeting.at), free(x->covered.at);
    }
    for (int how = 0; how < 3; how++) free(place->was[how].at);
    free_place(place->before);
    free(place->by_row.at), free(place->by_col.at), free(place->large.at), free(place->hash), free(place->pieces), free(place);
}

/* Add the actions that have touched a piece in a way that conflicts with this one. All that a piece keeps came after its
 * last write, so that one is named only if it keeps nothing else. */
static int against(int how, const Piece *x, List *found) {
    Int before = found->size;
    if (how != ADD && !extend(found, &x->adds)) return 0;
    if (how != READ && !extend(found, &x->reads)) return 0;
    return found->size > before || x->write < 0 || push(found, x->write);
}

static int same(const Rectangle *a, const Rectangle *b) {
    return a->top == b->top && a->bottom == b->bottom && a->left == b->left && a->right == b->right;
}

static uint64_t hashed(const Rectangle *x) {
    uint64_t h = (uint64_t)x->top * 0x9E3779B97F4A7C15u;
    h = (h ^ (uint64_t)x->bottom) * 0xC2B2AE3D27D4EB4Fu;
    h = (h ^ (uint64_t)x->left) * 0x165667B19E3779F9u;
    h = (h ^ (uint64_t)x->right) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

/* Return the number of a piece that is known, else -1. */
static Int find(const Place *place, const Rectangle *of) {
    if (!place->slots) {
        for (Int i = 0; i < place->count; i++)
            if (same(&place->pieces[i].of, of)) return i;
        return NONE;
    }
    for (uint64_t at = hashed(of);; at++) {
        Int i = place->hash[at & (uint64_t)(place->slots - 1)];
        if (i < 0 || same(&place->pieces[i].of, of)) return i;
    }
}

static void enter(Place *place, Int number) {
    uint64_t at = hashed(&place->pieces[number].of);
    while (place->hash[at & (uint64_t)(place->slots - 1)] >= 0) at++;
    place->hash[at & (uint64_t)(place->slots - 1)] = number;
}

static Int start_of(const Place *place, Int number, int by_col) {
    const Rectangle *of = &place->pieces[number].of;
    return by_col ? of->left : of->top;
}

/* Return how many of the pieces by their first row or column start before some row or column. */
static Int ahead(const Place *place, const List *sorted, int by_col, Int start) {
    Int low = 0, high = sorted->size;
    while (low < high) {
        Int middle = (low + high) / 2;
        if (start_of(place, sorted->at[middle], by_col) < start) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int insert(Place *place, List *sorted, int by_col, Int number) {
    Int at = ahead(place, sorted, by_col, start_of(place, number, by_col));
    if (!push(sorted, number)) return 0;
    memmove(sorted->at + at + 1, sorted->at + at, (size_t)(sorted->size - 1 - at) * sizeof(Int));
    sorted->at[at] = number;
    return 1;
}

static int index_piece(Place *place, Int number) {
    const Rectangle *of = &place->pieces[number].of;
    if (place->pieces[number].covered.size >= FEW / 2) return push(&place->large, number);
    if (of->bottom - of->top > place->tallest) place->tallest = of->bottom - of->top;
    if (of->right - of->left > place->widest) place->widest = of->right - of->left;
    return insert(place, &place->by_row, 0, number) && insert(place, &place->by_col, 1, number);
}

static int index_all(Place *place) {
    Int slots = place->slots ? 2 * place->slots : 4 * FEW;
    if (!place->slots)
        for (Int i = 0; i < place->count; i++)
            if (!index_piece(place, i)) return 0;
    free(place->hash);
    place->hash = malloc((size_t)slots * sizeof(Int)), place->slots = slots;
    if (!place->hash) {
        place->slots = 0;
        return 0;
    }
    for (Int i = 0; i < slots; i++) place->hash[i] = NONE;
    for (Int i = 0; i < place->count; i++) enter(place, i);
    return 1;
}

/* Let a new piece and another get to know each other, if they meet. */
static int meet(Place *place, Int number, Int other) {
    Piece *x = &place->pieces[number], *y = &place->pieces[other];
    const Rectangle *a = &x->of, *b = &y->of;
    if (!(b->top < a->bottom && a->top < b->bottom && b->left < a->right && a->left < b->right)) return 1;
    if (!push(&x->meeting, other) || !push(&y->meeting, number)) return 0;
    if (a->top <= b->top && b->bottom <= a->bottom && a->left <= b->left && b->right <= a->right)
        return push(&x->covered, other);
    if (b->top <= a->top && a->bottom <= b->bottom && b->left <= a->left && a->right <= b->right)
        return push(&y->covered, number);
    return 1;
}

/* Return the number of a piece, which is made if it is new; -1 if there is no memory.
 *
 * A copy that is gathered from p ranks has p pieces, and to look at all for each new one takes p². So of many pieces only
 * those about its rows or its columns are looked at, and those in `large`, beside which all others may begin. */
static Int piece_of(Place *place, const Rectangle *of) {
    Int number = find(place, of);
    if (number >= 0) return number;
    if (place->count == place->room) {
        Int room = place->room ? 2 * place->room : 2;
        Piece *pieces = realloc(place->pieces, (size_t)room * sizeof(Piece));
        if (!pieces) return NONE;
        place->pieces = pieces, place->room = room;
    }
    number = place->count++;
    place->pieces[number] = (Piece){*of, NONE, {0}, {0}, {0}, {0}};
    if (!place->slots) {
        for (Int other = 0; other < number; other++)
            if (!meet(place, number, other)) return NONE;
        if (place->count >= FEW && !index_all(place)) return NONE;
        return number;
    }
    Int first = ahead(place, &place->by_row, 0, of->top - place->tallest), last = ahead(place, &place->by_row, 0, of->bottom);
    Int left = ahead(place, &place->by_col, 1, of->left - place->widest), right = ahead(place, &place->by_col, 1, of->right);
    const List *near = last - first <= right - left ? &place->by_row : &place->by_col;
    if (near == &place->by_col) first = left, last = right;
    for (Int i = 0; i < place->large.size; i++)
        if (!meet(place, number, place->large.at[i])) return NONE;
    for (Int i = first; i < last; i++)
        if (!meet(place, number, near->at[i])) return NONE;
    if (!index_piece(place, number)) return NONE;
    if (2 * place->count > place->slots) return index_all(place) ? number : NONE;
    enter(place, number);
    return number;
}

/* Order ------------------------------------------------------------------------------------------------------------ */

/* The rows so far. `places` has the place of each temporary, `known` what is known of each place. */
typedef struct {
    PyObject_HEAD
    Int first, barrier, room;
    int signals;
    List places, ranks, offsets, after, found, others;
    char *computes, *waited;
    Place **known;
    Int known_room;
} Order;

/* One access: where, what of which buffer. */
typedef struct { Int place, buffer; Rectangle of; } Touch;

static int conflicts(Order *self, int how, const Touch *x) {
    Place *place = x->place < self->known_room ? self->known[x->place] : NULL;
    List *found = &self->found;
    if (!place) return 1;
    if (place->buffer != x->buffer) {
        for (Int i = 0; i < place->count; i++)
            if (!against(how, &place->pieces[i], found)) return 0;
        return 1;
    }
    Int number = piece_of(place, &x->of), before = found->size;
    if (number < 0) return 0;
    const List *meeting = &place->pieces[number].meeting;
    if (!against(how, &place->pieces[number], found)) return 0;
    for (Int i = 0; i < meeting->size; i++)
        if (!against(how, &place->pieces[meeting->at[i]], found)) return 0;
    /* What is found came after all that the slot held before, so only the first to touch a piece asks for that. */
    if (found->size > before || !place->before) return 1;
    List *was = &place->was[how];
    if (!place->known[how]) {
        for (Int i = 0; i < place->before->count; i++)
            if (!against(how, &place->before->pieces[i], was)) return 0;
        place->known[how] = 1;
    }
    return extend(found, was);
}

static int note(Order *self, int how, const Touch *x, Int row) {
    if (x->place >= self->known_room) {
        Int room = self->known_room ? 2 * self->known_room : 64;
        while (room <= x->place) room *= 2;
        Place **known = realloc(self->known, (size_t)room * sizeof(Place *));
        if (!known) return 0;
        memset(known + self->known_room, 0, (size_t)(room - self->known_room) * sizeof(Place *));
        self->known = known, self->known_room = room;
    }
    Place *place = self->known[x->place];
    if (!place || place->buffer != x->buffer) {
        Place *now = calloc(1, sizeof(Place));
        if (!now) return 0;
        if (place) free_place(place->before), place->before = NULL;
        now->buffer = x->buffer, now->before = place;
        self->known[x->place] = place = now;
    }
    Int number = piece_of(place, &x->of);
    if (number < 0) return 0;
    Piece *piece = &place->pieces[number];
    if (how == READ) return push(&piece->reads, row);
    if (how == ADD) return push(&piece->adds, row);
    piece->reads.size = piece->adds.size = 0, piece->write = row;
    for (Int i = 0; i < piece->covered.size; i++) {
        Piece *covered = &place->pieces[piece->covered.at[i]];
        covered->write = NONE, covered->reads.size = covered->adds.size = 0;
    }
    return 1;
}

/* Return the number of a new row that waits for some others, sorted; -1 if there is no memory. */
static Int push_row(Order *self, Int rank, int computes, const List *waits) {
    Int row = self->ranks.size;
    if (row == self->room) {
        Int room = self->room ? 2 * self->room : 256;
        char *a = realloc(self->computes, (size_t)room), *b = a ? realloc(self->waited, (size_t)room) : NULL;
        if (a) self->computes = a;
        if (b) self->waited = b;
        if (!a || !b) return NONE;
        self->room = room;
    }
    for (Int i = 0; i < waits->size; i++) self->waited[waits->at[i]] = 1;
    self->computes[row] = (char)computes, self->waited[row] = 0;
    if (!extend(&self->after, waits) || !push(&self->offsets, self->after.size) || !push(&self->ranks, rank)) return NONE;
    return row;
}

static int ascending(const void *a, const void *b) {
    Int x = *(const Int *)a, y = *(const Int *)b;
    return (x > y) - (x < y);
}

static void sort_found(List *found) {
    if (found->size > 32) qsort(found->at, (size_t)found->size, sizeof(Int), ascending);
    else
        for (Int i = 1; i < found->size; i++) {
            Int x = found->at[i], j = i;
            for (; j > 0 && found->at[j - 1] > x; j--) found->at[j] = found->at[j - 1];
            found->at[j] = x;
        }
    Int kept = 0;
    for (Int i = 0; i < found->size; i++)
        if (!kept || found->at[i] != found->at[kept - 1]) found->at[kept++] = found->at[i];
    found->size = kept;
}

/* Sort what has been found, and add the last barrier unless something after that is among it. */
static int after_barrier(Order *self) {
    List *found = &self->found;
    sort_found(found);
    if (self->barrier < 0 || (found->size && found->at[found->size - 1] >= self->barrier)) return 1;
    return push(found, self->barrier);
}

/* Whether a rank that waits for a row waits for another rank's signal. */
static int is_late(const Order *self, Int rank, Int own, Int row) {
    Int of = self->ranks.at[row];
    return row < own && of != rank && of != NONE;
}

/* Return the number of a row that waits for what has been found; say whether it waits for another rank's signal. What
computes and waits for one waits for a row of its own, which has seen it.

Rows from `own` on are of a part that is being added: it has the signals that its rows wait for among themselves. */
static Int settle(Order *self, Int rank, int computes, Int own, int *late) {
    List *found = &self->found, *others = &self->others;
    *late = 0;
    if (!after_barrier(self)) return NONE;
    if (self->signals) {
        Int kept = 0;
        others->size = 0;
        for (Int i = 0; i < found->size; i++) {
            if (is_late(self, rank, own, found->at[i]) && !push(others, found->at[i])) return NONE;
        }
        *late = others->size > 0;
        if (*late && computes) {
            for (Int i = 0; i < found->size; i++)
                if (!is_late(self, rank, own, found->at[i])) found->at[kept++] = found->at[i];
            found->size = kept;
            Int seen = push_row(self, rank, 0, others);
            if (seen < 0 || !push(found, seen)) return NONE;
        }
    }
    return push_row(self, rank, computes, found);
}

static int touch_of(Order *self, Int buffer, Touch *x) {
    x->buffer = buffer, x->place = buffer;
    if (buffer < self->first) return 1;
    if (buffer - self->first >= self->places.size) {
        PyErr_Format(PyExc_IndexError, "there is no buffer %lld", (long long)buffer);
        return 0;
    }
    x->place = self->places.at[buffer - self->first];
    return 1;
}

/* Read a Slice: its buffer, rank, tensor, rows and columns. */
static int read_slice(Order *self, PyObject *slice, Touch *x) {
    if (!slice || !PyTuple_Check(slice) || PyTuple_Size(slice) != 5) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a slice has five parts");
        return 0;
    }
    PyObject *rows = PyTuple_GetItem(slice, 3), *cols = PyTuple_GetItem(slice, 4);
    if (!PyTuple_Check(rows) || !PyTuple_Check(cols)) {
        PyErr_SetString(PyExc_TypeError, "rows and columns are intervals");
        return 0;
    }
    Int buffer = PyLong_AsLongLong(PyTuple_GetItem(slice, 0));
    x->of.top = PyLong_AsLongLong(PyTuple_GetItem(rows, 0)), x->of.bottom = PyLong_AsLongLong(PyTuple_GetItem(rows, 1));
    x->of.left = PyLong_AsLongLong(PyTuple_GetItem(cols, 0)), x->of.right = PyLong_AsLongLong(PyTuple_GetItem(cols, 1));
    if (PyErr_Occurred()) return 0;
    if (buffer < 0) {
        PyErr_SetString(PyExc_IndexError, "an empty slice touches nothing");
        return 0;
    }
    return touch_of(self, buffer, x);
}

enum { MOST = 64 }; /* slices of an action */

/* Read the slices of an action, and find what it conflicts with; return how many slices, -1 on an error. */
static Py_ssize_t find_all(Order *self, int how, PyObject *pieces, Touch *touches) {
    if (!PyTuple_Check(pieces) || PyTuple_Size(pieces) > MOST) {
        PyErr_SetString(PyExc_TypeError, "the slices of an action are a tuple");
        return NONE;
    }
    Py_ssize_t count = PyTuple_Size(pieces);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!read_slice(self, PyTuple_GetItem(pieces, i), &touches[i])) return NONE;
        if (!conflicts(self, i ? READ : how, &touches[i])) {
            PyErr_NoMemory();
            return NONE;
        }
    }
    return count;
}

static int note_all(Order *self, int how, const Touch *touches, Py_ssize_t count, Int row) {
    for (Py_ssize_t i = 1; i < count; i++)
        if (!note(self, READ, &touches[i], row)) return 0;
    return !count || note(self, how, &touches[0], row);
}

/* Read the numbers of rows to wait for; None stands for empty work. */
static int read_waits(Order *self, PyObject *waits) {
    PyObject *items = PyObject_GetIter(waits), *item;
    if (!items) return 0;
    while ((item = PyIter_Next(items))) {
        if (item != Py_None) {
            Int row = PyLong_AsLongLong(item);
            if (!PyErr_Occurred() && (row < 0 || row >= self->ranks.size)) PyErr_Format(PyExc_IndexError, "there is no row %lld", (long long)row);
            if (!PyErr_Occurred() && !push(&self->found, row)) PyErr_NoMemory();
        }
        Py_DECREF(item);
        if (PyErr_Occurred()) break;
    }
    Py_DECREF(items);
    return !PyErr_Occurred();
}

static int read_ints(PyObject *args, Int *numbers, Py_ssize_t count, Py_ssize_t arguments) {
    if (PyTuple_Size(args) != arguments) {
        PyErr_Format(PyExc_TypeError, "%zd arguments are taken", arguments);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(args, i));
    return !PyErr_Occurred();
}

static PyObject *order_hold(PyObject *object, PyObject *places) {
    Order *self = (Order *)object;
    PyObject *items = PyObject_GetIter(places), *item;
    if (!items) return NULL;
    while ((item = PyIter_Next(items))) {
        Int place = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (!PyErr_Occurred() && place < 0) PyErr_SetString(PyExc_IndexError, "places count from zero");
        if (!PyErr_Occurred() && !push(&self->places, place)) PyErr_NoMemory();
        if (PyErr_Occurred()) break;
    }
    Py_DECREF(items);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *order_conflicts(PyObject *object, PyObject *args) {
    Order *self = (Order *)object;
    Int how;
    Touch touches[MOST];
    if (!read_ints(args, &how, 1, 2)) return NULL;
    self->found.size = 0;
    if (find_all(self, (int)how, PyTuple_GetItem(args, 1), touches) < 0) return NULL;
    sort_found(&self->found);
    PyObject *set = PySet_New(NULL);
    for (Int i = 0; set && i < self->found.size; i++) {
        PyObject *row = PyLong_FromLongLong(self->found.at[i]);
        if (!row || PySet_Add(set, row) < 0) Py_CLEAR(set);
        Py_XDECREF(row);
    }
    return set;
}

static PyObject *order_add(PyObject *object, PyObject *args) {
    Order *self = (Order *)object;
    Int numbers[3]; /* rank, computes, how */
    Touch touches[MOST];
    int late;
    if (!read_ints(args, numbers, 3, 5)) return NULL;
    self->found.size = 0;
    if (!read_waits(self, PyTuple_GetItem(args, 4))) return NULL;
    Py_ssize_t count = find_all(self, (int)numbers[2], PyTuple_GetItem(args, 3), touches);
    if (count < 0) return NULL;
    Int row = settle(self, numbers[0], (int)numbers[1], self->ranks.size, &late);
    if (row < 0 || !note_all(self, (int)numbers[2], touches, count, row)) return PyErr_NoMemory();
    return PyLong_FromLongLong(late ? ~row : row);
}

static PyObject *order_follow(PyObject *object, PyObject *args) {
    Order *self = (Order *)object;
    Int rank;
    if (!read_ints(args, &rank, 1, 2)) return NULL;
    self->found.size = 0;
    if (!read_waits(self, PyTuple_GetItem(args, 1))) return NULL;
    Int row = after_barrier(self) ? push_row(self, rank, 0, &self->found) : NONE;
    return row < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(row);
}

static void forget_places(Order *self) {
    for (Int i = 0; i < self->known_room; i++) free_place(self->known[i]), self->known[i] = NULL;
}

static PyObject *order_barrier(PyObject *object, PyObject *none) {
    Order *self = (Order *)object;
    (void)none;
    self->found.size = 0;
    for (Int row = self->barrier < 0 ? 0 : self->barrier; row < self->ranks.size; row++)
        if (!self->waited[row] && !push(&self->found, row)) return PyErr_NoMemory();
    Int row = push_row(self, NONE, 0, &self->found);
    if (row < 0) return PyErr_NoMemory();
    forget_places(self);
    self->barrier = row;
    return PyLong_FromLongLong(row);
}

static PyObject *order_computed(PyObject *object, PyObject *slice) {
    Order *self = (Order *)object;
    Touch x;
    if (!read_slice(self, slice, &x)) return NULL;
    Place *place = x.place < self->known_room ? self->known[x.place] : NULL;
    if (!place || place->buffer != x.buffer) Py_RETURN_TRUE;
    Int number = piece_of(place, &x.of);
    if (number < 0) return PyErr_NoMemory();
    const List *meeting = &place->pieces[number].meeting;
    for (Int i = -1; i < meeting->size; i++) {
        const Piece *piece = &place->pieces[i < 0 ? number : meeting->at[i]];
        if (piece->write >= 0 && !self->computes[piece->write]) Py_RETURN_FALSE;
        for (Int j = 0; j < piece->adds.size; j++)
            if (!self->computes[piece->adds.at[j]]) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* The arrays given to append, then those filled. */
enum { RANKS, WAYS, COMPUTES, BUFFERS, SPANS, OFFSETS, AFTER, ROWS, LATE, ARRAYS };

static PyObject *order_append(PyObject *object, PyObject *args) {
    Order *self = (Order *)object;
    Py_buffer view[ARRAYS];
    PyObject *done = NULL;
    Int start = self->ranks.size;
    if (!take_arrays(args, "append", view, ARRAYS, 0, ROWS, ARRAYS, NULL)) return NULL;
    Int count = view[RANKS].len / 8, *rows = view[ROWS].buf, *late = view[LATE].buf;
    Int operands = count ? view[BUFFERS].len / 8 / count : 0;
    const Int *ranks = view[RANKS].buf, *ways = view[WAYS].buf, *computes = view[COMPUTES].buf, *buffers = view[BUFFERS].buf;
    const Int *spans = view[SPANS].buf, *offsets = view[OFFSETS].buf, *after = view[AFTER].buf;
    if (view[WAYS].len < 8 * count || view[COMPUTES].len < 8 * count || view[SPANS].len < 32 * count * operands ||
        view[OFFSETS].len < 8 * (count + 1) || view[ROWS].len < 8 * count || view[LATE].len < 8 * count || operands > MOST ||
        (count && view[AFTER].len < 8 * offsets[count])) {
        PyErr_SetString(PyExc_ValueError, "the arrays are not of one part");
        goto out;
    }
    for (Int i = 0; i < count; i++) {
        Touch touches[MOST];
        Py_ssize_t touched = 0;
        List *found = &self->found;
        int waits_late = 0;
        found->size = 0;
        if (ways[i] >= 0) {
            for (; touched < operands && buffers[i * operands + touched] >= 0; touched++) {
                Touch *x = &touches[touched];
                if (!touch_of(self, buffers[i * operands + touched], x)) goto out;
                memcpy(&x->of, spans + 4 * (i * operands + touched), sizeof(Rectangle));
                if (!conflicts(self, touched ? READ : (int)ways[i], x)) goto no_memory;
            }
            Int kept = 0;
            for (Int j = 0; j < found->size; j++)
                if (found->at[j] < start) found->at[kept++] = found->at[j];
            found->size = kept;
        }
        for (Int j = offsets[i]; j < offsets[i + 1]; j++) {
            if (after[j] < 0 || after[j] >= i) {
                PyErr_SetString(PyExc_IndexError, "an action waits for earlier ones");
                goto out;
            }
            if (!push(found, rows[after[j]])) goto no_memory;
        }
        if (ways[i] < 0) rows[i] = after_barrier(self) ? push_row(self, NONE, 0, found) : NONE;
        else rows[i] = settle(self, ranks[i], (int)computes[i], start, &waits_late);
        if (rows[i] < 0 || !note_all(self, (int)ways[i], touches, touched, rows[i])) goto no_memory;
        late[i] = waits_late;
    }
    done = Py_NewRef(Py_None);
    goto out;
no_memory:
    PyErr_NoMemory();
out:
    release_arrays(view, ARRAYS);
    return done;
}

/* The arrays given to transfers, then those filled. */
enum { T_WAYS, T_RANKS, T_MOVES, T_INTO, T_INTO_SPANS, T_FROM, T_FROM_SPANS, T_ROWS, T_LATE, T_ARRAYS };

/* Whether any of some rows has moved what a collective moves; -1 on an error. */
static int any_relayed(PyObject *relayed, const List *rows) {
    for (Int i = 0; i < rows->size; i++) {
        PyObject *row = PyLong_FromLongLong(rows->at[i]);
        int is = row ? PySet_Contains(relayed, row) : -1;
        Py_XDECREF(row);
        if (is) return is;
    }
    return 0;
}

/* Return the row that starts a collective on a rank, which is made if it is the first that needs it; -1 on an error. */
static Int start_of_rank(Order *self, PyObject *started, Int rank) {
    PyObject *key = PyLong_FromLongLong(rank), *known = key ? PyDict_GetItemWithError(started, key) : NULL;
    Int row = NONE, size = self->found.size;
    if (known) row = PyLong_AsLongLong(known);
    else if (key && !PyErr_Occurred()) {
        row = after_barrier(self) ? push_row(self, rank, 0, &self->found) : NONE;
        if (row < 0) PyErr_NoMemory();
        else {
            PyObject *value = PyLong_FromLongLong(row);
            if (!value || PyDict_SetItem(started, key, value) < 0) row = NONE;
            Py_XDECREF(value);
        }
        self->found.size = size < self->found.size ? size : self->found.size; /* without the barrier */
    }
    Py_XDECREF(key);
    return row;
}

static PyObject *order_transfers(PyObject *object, PyObject *args) {
    Order *self = (Order *)object;
    Py_buffer view[T_ARRAYS];
    PyObject *done = NULL;
    static const int items[T_ARRAYS] = {1, 1, 1, 1, 4, 1, 4, 1, 1};
    if (!take_arrays(args, "transfers", view, T_ARRAYS, 2, T_ROWS, T_ARRAYS, NULL)) return NULL;
    PyObject *started = PyTuple_GetItem(args, T_ARRAYS), *relayed = PyTuple_GetItem(args, T_ARRAYS + 1);
    if ((started != Py_None && !PyDict_Check(started)) || !PySet_Check(relayed)) {
        PyErr_SetString(PyExc_TypeError, "what has started is a dict, what was relayed a set");
        goto out;
    }
    for (int i = 0; i < T_ARRAYS; i++)
        if (view[i].len != items[i] * view[0].len) {
            PyErr_SetString(PyExc_ValueError, "the arrays are not of the same transfers");
            goto out;
        }
    const Int *ways = view[T_WAYS].buf, *ranks = view[T_RANKS].buf, *moves = view[T_MOVES].buf;
    const Int *into = view[T_INTO].buf, *from = view[T_FROM].buf;
    const Int *into_spans = view[T_INTO_SPANS].buf, *from_spans = view[T_FROM_SPANS].buf;
    Int count = view[0].len / 8, *rows = view[T_ROWS].buf, *late = view[T_LATE].buf;
    List *found = &self->found;
    for (Int i = 0; i < count; i++) {
        Touch touches[2];
        int waits_late, relays = 0;
        found->size = 0;
        if (into[i] < 0 || from[i] < 0) {
            PyErr_SetString(PyExc_IndexError, "an empty slice touches nothing");
            goto out;
        }
        if (!touch_of(self, into[i], &touches[0]) || !touch_of(self, from[i], &touches[1])) goto out;
        memcpy(&touches[0].of, into_spans + 4 * i, sizeof(Rectangle));
        memcpy(&touches[1].of, from_spans + 4 * i, sizeof(Rectangle));
        if (!conflicts(self, (int)ways[i], &touches[0]) || !conflicts(self, READ, &touches[1])) goto no_memory;
        if (started != Py_None) {
            sort_found(found);
            relays = any_relayed(relayed, found);
            if (relays < 0) goto out;
            if (moves[i] && !relays) {
                Int start = start_of_rank(self, started, ranks[i]);
                if (start < 0) goto out;
                if (!push(found, start)) goto no_memory;
            }
        }
        rows[i] = settle(self, ranks[i], 0, self->ranks.size, &waits_late);
        if (rows[i] < 0 || !note_all(self, (int)ways[i], touches, 2, rows[i])) goto no_memory;
        late[i] = waits_late;
        if (started != Py_None && (moves[i] || relays)) {
            PyObject *row = PyLong_FromLongLong(rows[i]);
            int added = row ? PySet_Add(relayed, row) : -1;
            Py_XDECREF(row);
            if (added < 0) goto out;
        }
    }
    done = Py_NewRef(Py_None);
    goto out;
no_memory:
    PyErr_NoMemory();
out:
    release_arrays(view, T_ARRAYS);
    return done;
}

static PyObject *order_size(PyObject *object, PyObject *none) {
    Order *self = (Order *)object;
    (void)none;
    PyObject *sizes = PyTuple_New(2);
    if (!sizes) return NULL;
    PyTuple_SetItem(sizes, 0, PyLong_FromLongLong(self->ranks.size));
    PyTuple_SetItem(sizes, 1, PyLong_FromLongLong(self->after.size));
    return sizes;
}

static PyObject *order_fill(PyObject *object, PyObject *args) {
    Order *self = (Order *)object;
    const List *columns[2] = {&self->offsets, &self->after};
    if (PyTuple_Size(args) != 2) {
        PyErr_SetString(PyExc_TypeError, "fill takes two arrays");
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        Py_buffer view;
        if (PyObject_GetBuffer(PyTuple_GetItem(args, i), &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) return NULL;
        int fits = view.len == (Py_ssize_t)sizeof(Int) * columns[i]->size;
        if (fits && view.len) memcpy(view.buf, columns[i]->at, (size_t)view.len);
        PyBuffer_Release(&view);
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "the arrays to fill have another size");
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *order_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    Int numbers[2]; /* first, signals */
    (void)named;
    if (!read_ints(args, numbers, 2, 2)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Order *self = (Order *)allocate(type, 0);
    if (!self) return NULL;
    self->first = numbers[0], self->signals = numbers[1] != 0, self->barrier = NONE;
    if (!push(&self->offsets, 0)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void order_dealloc(PyObject *object) {
    Order *self = (Order *)object;
    PyTypeObject *type = Py_TYPE(object);
    forget_places(self);
    List *lists[6] = {&self->places, &self->ranks, &self->offsets, &self->after, &self->found, &self->others};
    for (int i = 0; i < 6; i++) free(lists[i]->at);
    free(self->computes), free(self->waited), free(self->known);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"hold", order_hold, METH_O, "Take the places of further temporaries."},
    {"conflicts", order_conflicts, METH_VARARGS, "Return the rows that an action must come after, by its slices."},
    {"add", order_add, METH_VARARGS, "Add a row."},
    {"follow", order_follow, METH_VARARGS, "Add a row that touches nothing."},
    {"barrier", order_barrier, METH_NOARGS, "Add a row that waits for all before."},
    {"computed", order_computed, METH_O, "Whether what changed a slice last has computed it."},
    {"append", order_append, METH_VARARGS, "Add the rows of a part."},
    {"transfers", order_transfers, METH_VARARGS, "Add the rows of transfers between two slices each."},
    {"size", order_size, METH_NOARGS, "Return how many rows there are, and how many waits."},
    {"fill", order_fill, METH_VARARGS, "Fill where each row's waits start, and the waits."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)order_new},
    {Py_tp_dealloc, (void *)order_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {"umm.schedules.table._accesses.order", sizeof(Order), 0, Py_TPFLAGS_DEFAULT, slots};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_accesses", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__accesses(void) {
    PyObject *made = PyModule_Create(&module), *type = made ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObject(made, "order", type) < 0) {
        Py_XDECREF(type), Py_XDECREF(made);
        return NULL;
    }
    return made;
}
