/* The simulator's inner loop: plays a schedule on a clock.
 *
 * player.py with clock.py, work.py, engines.py and fabric/ is the reference on SimPy and explains the ideas; the names
 * are theirs. Times are equal to the last bit because every sum is added in the same order: alarms of equal time go off
 * in the order in which they were set, the flows of a link keep the order in which they came, and the compiler must not
 * contract a product and a sum (-ffp-contract=off). tests/sim/test_player.py holds the two together.
 */
#include "umm/arrays.h"
#include <math.h>
#include <setjmp.h>

enum { NONE = -1 };                  /* no key, node, work, … */
enum { LOCAL = 6, BARRIER = 7 };     /* kinds, as in umm/schedules/table/details.py */
enum { IDLE = -1, SHARED = -2 };     /* what is alone on a pair, as in fabric/own_links.py */
enum { BY_ENGINE, BY_RANK };         /* the two chains that a gemm hangs in */
static const double SAME = 1e-12;    /* as in fabric/filling.py */
static const Int STEPS_AT_ONCE = 16384; /* instants between two looks for Ctrl-C */

/* What an alarm calls. */
typedef enum { NOTHING, FINISH, TRANSFER, END, ARRIVE_ALONE, ARRIVE_SHARED, JOIN, ARRIVE } Call;

/* An array that grows. A pool is one whose items are used again, through a chain of free ones. */
#define LIST(type) struct { type *at; Int count, room; }

typedef struct { double time; Int order, bunch; Call call; } Alarm;
typedef struct { Int first, last; } Bunch;        /* the keys of an alarm, in order */
typedef struct { Int key, next; } Key;
typedef struct { double time; Call call; Int bunch; } Recent;
typedef struct { Int place, end; } Range;         /* successors still to be looked at */
typedef struct { Int first, last, count; } Chain; /* of gemms */

/* Work under way: the bytes of a transfer, or the engine seconds of a gemm. What fillings ask of a flow comes first. */
typedef struct {
    double rate, new_rate;                          /* the second is a flow's */
    int32_t bottleneck, filling, route;             /* of a flow */
    double left, since, due, alarm;
    Int action, next_free;
    Int rank, engine, before[2], then[2];           /* of a gemm */
} Work;

/* A link, and the flows on it in the order in which they came. */
typedef struct { double bandwidth, free, share; LIST(int32_t) flows; Int count; } Link;

/* The transfers between two ranks whose links are their own. */
typedef struct { double joined, moved, since, due; Int alone, first_waiting, last_waiting, flowing, count; } Pair;

typedef struct {
    /* The schedule, its routes, and what is found. */
    Int count, ranks, lanes, routes, links;
    const int8_t *kind, *means_of;
    const Int *rank, *lane, *offsets, *after, *src, *dst, *nbytes, *engine_of_lane, *route_offsets, *route_links, *slowest;
    const double *seconds, *loss_of_kind, *loss_of_means, *bandwidth, *latency;
    const int32_t *route;
    int32_t *looked_up;
    int disjoint, own_engines, disturbing, begun;
    double *started, *finished;
    /* The clock. */
    double now;
    Int alarms, free_bunch, free_key;
    Recent recent[2];
    LIST(Alarm) queue;
    LIST(Bunch) bunches;
    LIST(Key) keys;
    /* What waits for what. */
    Int *successor_offsets, *successors, *waiting;
    LIST(Range) ranges;
    /* Work, by action. */
    LIST(Work) works;
    Int free_work;
    int32_t *work_of;
    /* Engines; none if nothing changes their rate. */
    int engines;
    double *loss, *keeps;
    int8_t *computes;
    Chain *of_engine, *of_rank;
    LIST(double) *taken;
    /* The fabric: pairs with links of their own, or links that are shared. */
    Pair *pairs;
    double *joins, *ends;
    Int *next;
    Link *link;
    int32_t fillings;
    LIST(Int) touched, filled, crossed, mixed, more;
    jmp_buf out_of_memory;
} Play;

static void *checked(Play *p, void *memory) {
    if (!memory) longjmp(p->out_of_memory, 1);
    return memory;
}

static void *unset(Play *p, Int count, size_t size) { return checked(p, malloc((size_t)(count > 0 ? count : 1) * size)); }

static void *zeros(Play *p, Int count, size_t size) { return checked(p, calloc((size_t)(count > 0 ? count : 1), size)); }

#define PUSH(p, list, item) do { \
        if ((list).count == (list).room) { \
            Int room_ = (list).room ? 2 * (list).room : 16; \
            (list).at = checked(p, realloc((list).at, (size_t)room_ * sizeof *(list).at)); \
            (list).room = room_; \
        } \
        (list).at[(list).count++] = (item); \
    } while (0)

/* The clock ------------------------------------------------------------------------------------------------------ */

static int sooner(const Alarm *a, const Alarm *b) {
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void queue_up(Play *p, Alarm alarm) {
    PUSH(p, p->queue, alarm);
    Alarm *at = p->queue.at;
    Int place = p->queue.count - 1;
    while (place > 0 && sooner(&alarm, &at[(place - 1) / 2])) {
        at[place] = at[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    at[place] = alarm;
}

static Alarm next_alarm(Play *p) {
    Alarm *at = p->queue.at, first = at[0], last = at[--p->queue.count];
    Int place = 0, count = p->queue.count;
    for (Int child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && sooner(&at[child + 1], &at[child])) child++;
        if (!sooner(&at[child], &last)) break;
        at[place] = at[child];
        place = child;
    }
    at[place] = last;
    return first;
}

/* Clock.at: a call with the time and the function of one of the last two alarms joins it. */
static void set_alarm(Play *p, double time, Call call, Int key) {
    Int made = p->free_key;
    if (made != NONE) {
        p->free_key = p->keys.at[made].next;
        p->keys.at[made] = (Key){key, NONE};
    } else {
        made = p->keys.count;
        PUSH(p, p->keys, ((Key){key, NONE}));
    }
    for (int i = 0; i < 2; i++) {
        if (time == p->recent[i].time && call == p->recent[i].call) {
            Bunch *bunch = &p->bunches.at[p->recent[i].bunch];
            p->keys.at[bunch->last].next = made;
            bunch->last = made;
            return;
        }
    }
    Int bunch = p->free_bunch;
    if (bunch != NONE) {
        p->free_bunch = p->bunches.at[bunch].first;
        p->bunches.at[bunch] = (Bunch){made, made};
    } else {
        bunch = p->bunches.count;
        PUSH(p, p->bunches, ((Bunch){made, made}));
    }
    p->recent[1] = p->recent[0];
    p->recent[0] = (Recent){time, call, bunch};
    queue_up(p, (Alarm){time, ++p->alarms, bunch, call});
}

/* An alarm that has gone off cannot be joined any more. */
static void let_go(Play *p, Int bunch) {
    for (int i = 0; i < 2; i++)
        if (p->recent[i].call != NOTHING && p->recent[i].bunch == bunch) p->recent[i].call = NOTHING;
    Bunch *done = &p->bunches.at[bunch];
    p->keys.at[done->last].next = p->free_key;
    p->free_key = done->first;
    done->first = p->free_bunch;
    p->free_bunch = bunch;
}

/* Work ----------------------------------------------------------------------------------------------------------- */

static Int new_work(Play *p, Int action, double left) {
    Work work = {.left = left, .since = p->now, .due = INFINITY, .alarm = INFINITY, .action = action};
    Int made = p->free_work;
    if (made != NONE) {
        p->free_work = p->works.at[made].next_free;
        p->works.at[made] = work;
    } else {
        made = p->works.count;
        PUSH(p, p->works, work);
    }
    p->work_of[action] = (int32_t)made;
    return made;
}

static void free_work(Play *p, Int number) {
    p->work_of[p->works.at[number].action] = NONE;
    p->works.at[number].next_free = p->free_work;
    p->free_work = number;
}

static void go_on(Play *p, Work *work, double rate, Call call) {
    double now = p->now, left = work->left - work->rate * (now - work->since);
    work->left = left;
    work->rate = rate;
    work->since = now;
    work->due = left > 0.0 ? now + left / rate : now;
    if (work->due < work->alarm) {
        work->alarm = work->due;
        set_alarm(p, work->due, call, work->action);
    }
}

/* Whether an alarm is the work's end; one that comes too early is set anew, one of work long ended means nothing. */
static int has_ended(Play *p, Int number, Call call) {
    if (number == NONE || p->works.at[number].alarm != p->now) return 0;
    Work *work = &p->works.at[number];
    if (work->due > p->now) {
        work->alarm = work->due;
        set_alarm(p, work->due, call, work->action);
        return 0;
    }
    work->alarm = INFINITY;
    return 1;
}

/* Actions begin and finish --------------------------------------------------------------------------------------- */

static void transfer(Play *p, Int action);
static void start_gemm(Play *p, Int action);
static void disturb(Play *p, Int action);
static void restore(Play *p, Int action);

static void ended(Play *p, Int action) {
    p->finished[action] = p->now;
    if (p->engines && p->loss[action] != 0.0) restore(p, action);
    PUSH(p, p->ranges, ((Range){p->successor_offsets[action], p->successor_offsets[action + 1]}));
}

static void begin(Play *p, Int action) {
    p->started[action] = p->now;
    if (p->route[action] >= 0) {
        if (p->engines && p->loss[action] != 0.0) disturb(p, action);
        if (p->seconds[action] != 0.0) set_alarm(p, p->now + p->seconds[action], TRANSFER, action);
        else transfer(p, action);
    } else if (p->engines && p->computes[action]) {
        start_gemm(p, action);
    } else if (p->kind[action] == BARRIER) {
        ended(p, action);
    } else {
        set_alarm(p, p->now + p->seconds[action], FINISH, action);
    }
}

/* Begin what waited for what has ended, depth first: a barrier ends as soon as it begins. */
static void go_through(Play *p) {
    while (p->ranges.count) {
        Range *range = &p->ranges.at[p->ranges.count - 1];
        if (range->place == range->end) {
            p->ranges.count--;
            continue;
        }
        Int successor = p->successors[range->place++];
        if (--p->waiting[successor] == 0) begin(p, successor);
    }
}

static void finish(Play *p, Int action) {
    ended(p, action);
    go_through(p);
}

/* Engines -------------------------------------------------------------------------------------------------------- */

static void hang(Play *p, Chain *chain, int which, Int number) {
    Work *work = &p->works.at[number];
    work->before[which] = chain->last;
    work->then[which] = NONE;
    if (chain->last == NONE) chain->first = number;
    else p->works.at[chain->last].then[which] = number;
    chain->last = number;
    chain->count++;
}

static void unhang(Play *p, Chain *chain, int which, Int number) {
    Int before = p->works.at[number].before[which], then = p->works.at[number].then[which];
    if (before == NONE) chain->first = then;
    else p->works.at[before].then[which] = then;
    if (then == NONE) chain->last = before;
    else p->works.at[then].before[which] = before;
    chain->count--;
}

static void share_engine(Play *p, Int engine) {
    Chain *chain = &p->of_engine[engine];
    for (Int i = chain->first; i != NONE; i = p->works.at[i].then[BY_ENGINE]) {
        double rate = p->keeps[p->works.at[i].rank] / (double)chain->count;
        if (rate != p->works.at[i].rate) go_on(p, &p->works.at[i], rate, END);
    }
}

static void touch_rank(Play *p, Int rank) {
    for (Int i = p->of_rank[rank].first; i != NONE; i = p->works.at[i].then[BY_RANK])
        share_engine(p, p->works.at[i].engine);
}

static void start_gemm(Play *p, Int action) {
    Int number = new_work(p, action, p->seconds[action]);
    Int rank = p->works.at[number].rank = p->rank[action];
    Int engine = p->works.at[number].engine = p->engine_of_lane[p->lane[action]];
    hang(p, &p->of_engine[engine], BY_ENGINE, number);
    hang(p, &p->of_rank[rank], BY_RANK, number);
    share_engine(p, engine);
}

static void end_gemm(Play *p, Int action) {
    Int number = p->work_of[action];
    if (!has_ended(p, number, END)) return;
    Int engine = p->works.at[number].engine;
    unhang(p, &p->of_engine[engine], BY_ENGINE, number);
    unhang(p, &p->of_rank[p->works.at[number].rank], BY_RANK, number);
    free_work(p, number);
    share_engine(p, engine);
    finish(p, action);
}

static void disturb(Play *p, Int action) {
    Int rank = p->rank[action];
    double keeps = 1.0 - p->loss[action];
    PUSH(p, p->taken[rank], p->loss[action]);
    if (keeps < p->keeps[rank]) {
        p->keeps[rank] = keeps;
        touch_rank(p, rank);
    }
}

static void restore(Play *p, Int action) {
    Int rank = p->rank[action], place = 0;
    double most = 0.0, *at = p->taken[rank].at;
    while (at[place] != p->loss[action]) place++;
    at[place] = at[--p->taken[rank].count];
    for (Int i = 0; i < p->taken[rank].count; i++) if (at[i] > most) most = at[i];
    double keeps = 1.0 - most;
    if (keeps != p->keeps[rank]) {
        p->keeps[rank] = keeps;
        touch_rank(p, rank);
    }
}

/* Own links ------------------------------------------------------------------------------------------------------ */

static double pair_bandwidth(Play *p, Int route) { return p->bandwidth[p->slowest[route]]; }

static void wait_on_pair(Play *p, Pair *pair, double join, Int action) {
    p->joins[action] = join;
    p->next[action] = NONE;
    if (pair->first_waiting == NONE) pair->first_waiting = action;
    else p->next[pair->last_waiting] = action;
    pair->last_waiting = action;
}

/* Add a transfer to those that flow, which are in the order in which they finish, those of equal ends by number. */
static void flow_on_pair(Play *p, Pair *pair, Int action) {
    Int *place = &pair->flowing;
    double end = p->ends[action] = pair->moved + (double)p->nbytes[action];
    while (*place != NONE && (p->ends[*place] < end || (p->ends[*place] == end && *place < action))) place = &p->next[*place];
    p->next[action] = *place;
    *place = action;
    pair->count++;
}

/* Set the alarm for a shared pair's next finish, letting those join that come before it. */
static void plan_pair(Play *p, Int route) {
    Pair *pair = &p->pairs[route];
    double bandwidth = pair_bandwidth(p, route), done;
    for (;;) {
        Int first = pair->first_waiting;
        if (pair->count) {
            done = pair->since + (p->ends[pair->flowing] - pair->moved) * (double)pair->count / bandwidth;
            if (first == NONE || p->joins[first] > done) break;
            pair->moved += (p->joins[first] - pair->since) * bandwidth / (double)pair->count;
        } else {
            pair->moved = 0.0;
        }
        pair->first_waiting = p->next[first];
        pair->since = p->joins[first];
        flow_on_pair(p, pair, first);
    }
    if (done != pair->due) {
        pair->due = done;
        set_alarm(p, done, ARRIVE_SHARED, route);
    }
}

static void start_on_pair(Play *p, Int action) {
    Int route = p->route[action];
    Pair *pair = &p->pairs[route];
    double join = p->now + p->latency[route];
    if (pair->alone == IDLE) {
        pair->alone = action;
        pair->joined = join;
        set_alarm(p, join + (double)p->nbytes[action] / pair_bandwidth(p, route), ARRIVE_ALONE, action);
        return;
    }
    if (pair->alone != SHARED) {
        wait_on_pair(p, pair, pair->joined, pair->alone);
        pair->alone = SHARED;
    }
    wait_on_pair(p, pair, join, action);
    plan_pair(p, route);
}

static void arrive_alone(Play *p, Int action) {
    Pair *pair = &p->pairs[p->route[action]];
    if (pair->alone != action) return; /* another has joined it, and its time has changed */
    pair->alone = IDLE;
    finish(p, action);
}

static void arrive_shared(Play *p, Int route) {
    Pair *pair = &p->pairs[route];
    if (pair->due != p->now) return;
    Int first = pair->flowing, last = first;
    pair->due = INFINITY;
    pair->moved = p->ends[first];
    pair->since = p->now;
    pair->count--;
    while (p->next[last] != NONE && p->ends[p->next[last]] == pair->moved) {
        last = p->next[last];
        pair->count--;
    }
    pair->flowing = p->next[last];
    p->next[last] = NONE;
    if (pair->count || pair->first_waiting != NONE) plan_pair(p, route);
    else pair->alone = IDLE;
    while (first != NONE) {
        Int then = p->next[first];
        finish(p, first);
        first = then;
    }
}

/* Shared links --------------------------------------------------------------------------------------------------- */

static void start_flow(Play *p, Int action) {
    Int route = p->route[action], number = new_work(p, action, (double)p->nbytes[action]);
    Work *flow = &p->works.at[number];
    flow->bottleneck = (int32_t)p->slowest[route];
    flow->route = (int32_t)route;
    set_alarm(p, p->now + p->latency[route], JOIN, action);
}

/* The links of a flow's route: from `links` up to `end`. */
#define CROSSED_BY(p, flow) \
    const Int *links = (p)->route_links + (p)->route_offsets[(flow)->route], \
              *end = (p)->route_links + (p)->route_offsets[(flow)->route + 1]

static void join(Play *p, Int action) {
    int32_t number = p->work_of[action];
    Work *flow = &p->works.at[number];
    CROSSED_BY(p, flow);
    int alone = 1;
    for (const Int *i = links; i < end; i++) {
        if (p->link[*i].flows.count) alone = 0;
        PUSH(p, p->link[*i].flows, number);
    }
    if (alone) go_on(p, flow, p->link[flow->bottleneck].bandwidth, ARRIVE);
    else for (const Int *i = links; i < end; i++) PUSH(p, p->touched, *i);
}

static void arrive(Play *p, Int action) {
    int32_t number = p->work_of[action];
    if (!has_ended(p, number, ARRIVE)) return;
    CROSSED_BY(p, &p->works.at[number]);
    for (const Int *i = links; i < end; i++) {
        Link *link = &p->link[*i];
        int32_t *at = link->flows.at;
        Int place = 0, left = --link->flows.count;
        while (at[place] != number) place++;
        for (; place < left; place++) at[place] = at[place + 1];
        /* Those left on a link can only go faster if it is what holds one of them back. */
        for (Int j = 0; j < left; j++) {
            if (p->works.at[at[j]].bottleneck == *i) {
                PUSH(p, p->touched, *i);
                break;
            }
        }
    }
    free_work(p, number);
    finish(p, action);
}

/* filling._raise: raise all rates evenly; when a link is full its flows stay where they are; go on with the others. */
static void raise_rates(Play *p, Int left) {
    Int *open = p->crossed.at, count = p->crossed.count;
    for (;;) {
        double rate = INFINITY;
        for (Int i = 0; i < count; i++) if (p->link[open[i]].share < rate) rate = p->link[open[i]].share;
        for (Int i = 0; i < count; i++) {
            const Link *full = &p->link[open[i]];
            if (full->share != rate) continue;
            for (Int j = 0; j < full->flows.count; j++) {
                Work *flow = &p->works.at[full->flows.at[j]];
                if (flow->bottleneck != NONE) continue;
                flow->new_rate = rate;
                flow->bottleneck = (int32_t)open[i];
                left--;
                CROSSED_BY(p, flow);
                for (const Int *k = links; k < end; k++) {
                    p->link[*k].free -= rate;
                    p->link[*k].count--;
                }
            }
        }
        if (left <= 0) return;
        Int kept = 0;
        for (Int i = 0; i < count; i++) if (p->link[open[i]].count) open[kept++] = open[i];
        count = kept;
        for (Int i = 0; i < count; i++) p->link[open[i]].share = p->link[open[i]].free / (double)p->link[open[i]].count;
    }
}

/* Filling._unsettled: the flows held fixed that the new rates leave without a bottleneck, or too fast. */
static void find_unsettled(Play *p) {
    p->more.count = 0;
    for (Int i = 0; i < p->mixed.count; i++) {
        Int number = p->mixed.at[i];
        const Link *link = &p->link[number];
        double load = 0.0, fastest = 0.0, slowest = INFINITY;            /* of the flows filled, the last two */
        double held = 0.0, least_here = INFINITY;                        /* of those held fixed */
        for (Int j = 0; j < link->flows.count; j++) {
            const Work *flow = &p->works.at[link->flows.at[j]];
            if (flow->filling != p->fillings) {
                load += flow->rate;
                if (flow->rate > held) held = flow->rate;
                if (flow->bottleneck == number && flow->rate < least_here) least_here = flow->rate;
                continue;
            }
            load += flow->new_rate;
            if (flow->new_rate > fastest) fastest = flow->new_rate;
            if (flow->bottleneck == number && flow->new_rate < slowest) slowest = flow->new_rate;
        }
        int slack = load < link->bandwidth * (1 - SAME);
        if (!(least_here < INFINITY && (slack || fastest > least_here * (1 + SAME))) && !(held > slowest * (1 + SAME)))
            continue; /* no flow held fixed is loose or too fast */
        for (Int j = 0; j < link->flows.count; j++) {
            const Work *flow = &p->works.at[link->flows.at[j]];
            if (flow->filling == p->fillings) continue;
            int loose = flow->bottleneck == number && (slack || fastest > flow->rate * (1 + SAME));
            if (loose || flow->rate > slowest * (1 + SAME)) PUSH(p, p->more, link->flows.at[j]);
        }
    }
}

static void take_up(Play *p, Int number) {
    if (p->works.at[number].filling == p->fillings) return;
    p->works.at[number].filling = p->fillings;
    PUSH(p, p->filled, number);
}

/* Filling.fill: find the new rates after flows have come or gone on the touched links. */
static void fill(Play *p) {
    p->fillings++;
    p->filled.count = 0;
    for (Int i = 0; i < p->touched.count; i++)
        for (Int j = 0; j < p->link[p->touched.at[i]].flows.count; j++) take_up(p, p->link[p->touched.at[i]].flows.at[j]);
    p->touched.count = 0;
    Int reached = 0;
    while (p->filled.count > reached) {
        reached = p->filled.count;
        p->crossed.count = p->mixed.count = 0;
        for (Int i = 0; i < reached; i++) {
            Work *flow = &p->works.at[p->filled.at[i]];
            flow->bottleneck = NONE;
            CROSSED_BY(p, flow);
            for (const Int *j = links; j < end; j++) if (!p->link[*j].count++) PUSH(p, p->crossed, *j);
        }
        for (Int i = 0; i < p->crossed.count; i++) {
            Link *link = &p->link[p->crossed.at[i]];
            link->free = link->bandwidth;
            if (link->count < link->flows.count) {
                PUSH(p, p->mixed, p->crossed.at[i]);
                for (Int j = 0; j < link->flows.count; j++) {
                    const Work *flow = &p->works.at[link->flows.at[j]];
                    if (flow->filling != p->fillings) link->free -= flow->rate;
                }
            }
            link->share = link->free / (double)link->count;
        }
        raise_rates(p, reached);
        find_unsettled(p);
        for (Int i = 0; i < p->more.count; i++) take_up(p, p->more.at[i]);
    }
    for (Int i = 0; i < p->filled.count; i++) {
        Work *flow = &p->works.at[p->filled.at[i]];
        if (flow->new_rate != flow->rate) go_on(p, flow, flow->new_rate, ARRIVE);
    }
}

static void transfer(Play *p, Int action) {
    if (p->disjoint) start_on_pair(p, action);
    else start_flow(p, action);
}

/* The play ------------------------------------------------------------------------------------------------------- */

/* successors.py: dependencies turned round, and on each lane every action after the one before it. */
static void find_successors(Play *p) {
    Int n = p->count, *last = unset(p, p->lanes, sizeof(Int)), *place;
    p->successor_offsets = zeros(p, n + 2, sizeof(Int));
    p->waiting = zeros(p, n, sizeof(Int));
    p->successors = unset(p, p->offsets[n] + n, sizeof(Int));
    place = p->successor_offsets + 1; /* counted one further on, so that filling moves each to its start */
    for (int pass = 0; pass < 2; pass++) {
        for (Int i = 0; i < n; i++) {
            for (Int j = p->offsets[i]; j < p->offsets[i + 1]; j++) {
                Int before = p->after[j];
                if (p->lane[before] == p->lane[i] && p->lane[i] >= 0) continue; /* the lane's order says so */
                if (pass) p->successors[place[before]++] = i;
                else place[before + 1]++, p->waiting[i]++;
            }
        }
        for (Int i = 0; i < p->lanes; i++) last[i] = NONE;
        for (Int i = 0; i < n; i++) {
            Int lane = p->lane[i];
            if (lane < 0) continue;
            if (last[lane] != NONE) {
                if (pass) p->successors[place[last[lane]]++] = i;
                else place[last[lane] + 1]++, p->waiting[i]++;
            }
            last[lane] = i;
        }
        if (!pass) for (Int i = 0; i < n; i++) place[i + 1] += place[i];
    }
    free(last);
}

/* engines.found_engines: whether anything changes the rate of work, and of what. */
static void find_engines(Play *p) {
    Int n = p->count, last_work = NONE, first_loss = NONE, engines = 0;
    if (p->own_engines && !p->disturbing) return;
    p->loss = zeros(p, n, sizeof(double));
    p->computes = zeros(p, n, sizeof(int8_t));
    for (Int i = 0; i < p->lanes; i++) if (p->engine_of_lane[i] >= engines) engines = p->engine_of_lane[i] + 1;
    Int *lane_of_engine = unset(p, engines, sizeof(Int));
    int apart = 1, parted = 0;
    for (Int i = 0; i < engines; i++) lane_of_engine[i] = NONE;
    for (Int i = 0; i < n; i++) {
        if (p->src[i] != p->dst[i]) {
            int own = !p->means_of || p->means_of[i] < 0;
            p->loss[i] = own ? p->loss_of_kind[p->kind[i]] : p->loss_of_means[p->means_of[i]];
            if (p->loss[i] != 0.0 && first_loss == NONE) first_loss = i;
        } else if (p->kind[i] != LOCAL && p->kind[i] != BARRIER && p->engine_of_lane[p->lane[i]] >= 0) {
            Int *lane = &lane_of_engine[p->engine_of_lane[p->lane[i]]];
            p->computes[i] = 1;
            last_work = i;
            if (*lane != NONE && *lane != p->lane[i]) apart = 0;
            *lane = p->lane[i];
        }
    }
    free(lane_of_engine);
    for (Int i = last_work + 1; i < first_loss; i++) if (p->kind[i] == BARRIER) parted = 1;
    if (apart && (last_work == NONE || first_loss == NONE || parted)) return; /* all work takes its seconds */
    p->engines = 1;
    p->keeps = unset(p, p->ranks, sizeof(double));
    p->of_engine = unset(p, engines, sizeof(Chain));
    p->of_rank = unset(p, p->ranks, sizeof(Chain));
    p->taken = zeros(p, p->ranks, sizeof *p->taken);
    for (Int i = 0; i < engines; i++) p->of_engine[i] = (Chain){NONE, NONE, 0};
    for (Int i = 0; i < p->ranks; i++) p->of_rank[i] = (Chain){NONE, NONE, 0}, p->keeps[i] = 1.0;
}

/* RouteBook.are_disjoint: whether no two routes of the schedule share a link. */
static int routes_are_disjoint(Play *p) {
    int8_t *known = zeros(p, p->routes, sizeof(int8_t)), *used = zeros(p, p->links, sizeof(int8_t));
    int apart = 1;
    for (Int i = 0; i < p->count && apart; i++) {
        Int route = p->route[i];
        if (route < 0 || known[route]) continue;
        known[route] = 1;
        for (Int j = p->route_offsets[route]; j < p->route_offsets[route + 1]; j++) {
            if (used[p->route_links[j]]) apart = 0;
            used[p->route_links[j]] = 1;
        }
    }
    free(known);
    free(used);
    return apart;
}

static void find_fabric(Play *p) {
    p->disjoint = routes_are_disjoint(p);
    if (p->disjoint) {
        p->pairs = unset(p, p->routes, sizeof(Pair));
        p->joins = unset(p, p->count, sizeof(double));
        p->ends = unset(p, p->count, sizeof(double));
        p->next = unset(p, p->count, sizeof(Int));
        for (Int i = 0; i < p->routes; i++) p->pairs[i] = (Pair){0, 0, 0, INFINITY, IDLE, NONE, NONE, NONE, 0};
    } else {
        p->link = unset(p, p->links, sizeof(Link));
        for (Int i = 0; i < p->links; i++) p->link[i] = (Link){.bandwidth = p->bandwidth[i]};
    }
    if (p->engines || !p->disjoint) p->work_of = unset(p, p->count, sizeof(int32_t));
}

/* Clock.step: let all alarms of the next instant go off, then settle the rates of flows. */
static void step(Play *p) {
    double now = p->now = p->queue.at[0].time;
    while (p->queue.count && p->queue.at[0].time == now) {
        Alarm alarm = next_alarm(p);
        for (Int i = p->bunches.at[alarm.bunch].first; i != NONE; i = p->keys.at[i].next) { /* may grow meanwhile */
            Int key = p->keys.at[i].key;
            switch (alarm.call) {
            case FINISH: finish(p, key); break;
            case TRANSFER: transfer(p, key); break;
            case END: end_gemm(p, key); break;
            case ARRIVE_ALONE: arrive_alone(p, key); break;
            case ARRIVE_SHARED: arrive_shared(p, key); break;
            case JOIN: join(p, key); break;
            case ARRIVE: arrive(p, key); break;
            case NOTHING: break;
            }
        }
        let_go(p, alarm.bunch);
    }
    if (p->touched.count) fill(p);
}

static void clean_up(Play *p) {
    if (p->taken) for (Int i = 0; i < p->ranks; i++) free(p->taken[i].at);
    if (p->link) for (Int i = 0; i < p->links; i++) free(p->link[i].flows.at);
    void *memory[] = {
        p->queue.at, p->bunches.at, p->keys.at, p->ranges.at, p->works.at, p->touched.at, p->filled.at,
        p->crossed.at, p->mixed.at, p->more.at, p->successor_offsets, p->successors, p->waiting, p->work_of, p->loss,
        p->keeps, p->computes, p->of_engine, p->of_rank, p->taken, p->pairs, p->joins, p->ends, p->next, p->link,
    };
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

enum { DONE, MORE, NO_MEMORY };

/* Play some instants, the first time from the beginning; touches no Python. */
static int play_on(Play *p) {
    if (setjmp(p->out_of_memory)) return NO_MEMORY;
    if (!p->begun) {
        p->begun = 1;
        p->free_bunch = p->free_key = p->free_work = NONE;
        find_successors(p);
        find_engines(p);
        find_fabric(p);
        for (Int i = 0; i < p->count; i++) p->started[i] = p->finished[i] = -1.0;
        for (Int i = 0; i < p->count; i++) {
            if (p->waiting[i] || p->started[i] >= 0.0) continue; /* what followed a barrier has begun already */
            begin(p, i);
            go_through(p);
        }
    }
    for (Int steps = 0; p->queue.count; steps++) {
        if (steps == STEPS_AT_ONCE) return MORE;
        step(p);
    }
    return DONE;
}

/* Whether all numbers lie inside the tables that they are looked up in. */
static int fits(const Play *p) {
    Int n = p->count, before = 0;
    if (p->offsets[0] != 0) return 0;
    for (Int i = 0; i < n; i++) {
        if (p->offsets[i + 1] < p->offsets[i] || p->kind[i] < 0 || p->lane[i] < -1 || p->lane[i] >= p->lanes) return 0;
        if (p->kind[i] != BARRIER && (p->lane[i] < 0 || p->rank[i] < 0 || p->rank[i] >= p->ranks)) return 0;
        if (p->route[i] >= p->routes || (p->route[i] < 0) != (p->src[i] == p->dst[i])) return 0;
    }
    for (; before < p->offsets[n]; before++) if (p->after[before] < 0 || p->after[before] >= n) return 0;
    return 1;
}

/* Find each action's route by its pair of ranks; 0 if one has none that is numbered. */
static int look_up(Play *p, const int32_t *number, Int numbers) {
    for (Int i = 0; i < p->count; i++) {
        Int pair = p->src[i] * p->ranks + p->dst[i];
        if (p->src[i] == p->dst[i]) p->looked_up[i] = NONE;
        else if (pair < 0 || pair >= numbers || number[pair] < 0 || number[pair] >= p->routes) return 0;
        else p->looked_up[i] = number[pair];
    }
    return 1;
}

/* Find whether no engine is that of two lanes; 0 if they are not numbered below the number of lanes. */
static int number_engines(Play *p) {
    char *known = PyMem_Calloc((size_t)p->lanes + 1, 1);
    int fits = known != NULL;
    p->own_engines = 1;
    for (Int i = 0; fits && i < p->lanes; i++) {
        Int engine = p->engine_of_lane[i];
        if (engine >= p->lanes) fits = 0;
        else if (engine >= 0 && known[engine]++) p->own_engines = 0, known[engine] = 1;
    }
    PyMem_Free(known);
    return fits;
}

/* When the last action finishes; -1 if some never do. */
static double last_finish(const Play *p) {
    double last = 0.0;
    for (Int i = 0; i < p->count; i++) {
        if (p->finished[i] < 0.0) return -1.0;
        if (p->finished[i] > last) last = p->finished[i];
    }
    return last;
}

/* The arguments of play, in order: an array each, with what it is an array of. */
enum {
    KIND, RANK, LANE, OFFSETS, AFTER, SRC, DST, NBYTES, SECONDS, ROUTE, NUMBER, ENGINE, LOSS_OF_KIND, MEANS_OF, LOSS_OF_MEANS,
    ROUTE_OFFSETS, ROUTE_LINKS, SLOWEST, LATENCY, BANDWIDTH, STARTED, FINISHED, ARRAYS
};

static PyObject *play(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view[ARRAYS];
    PyObject *found = NULL;
    if (!take_arrays(args, "play", view, ARRAYS, 1, STARTED, ARRAYS, "1888888884488188888888")) return NULL;
    Play *p = PyMem_Calloc(1, sizeof(Play));
    if (!p) {
        release_arrays(view, ARRAYS);
        return PyErr_NoMemory();
    }
#define ITEMS(which) ((Int)(view[which].len / view[which].itemsize))
    p->ranks = PyLong_AsLongLong(PyTuple_GetItem(args, ARRAYS));
    if (PyErr_Occurred()) goto out;
    p->count = ITEMS(KIND), p->lanes = ITEMS(ENGINE), p->routes = ITEMS(LATENCY), p->links = ITEMS(BANDWIDTH);
    p->kind = view[KIND].buf, p->rank = view[RANK].buf, p->lane = view[LANE].buf;
    p->offsets = view[OFFSETS].buf, p->after = view[AFTER].buf, p->src = view[SRC].buf, p->dst = view[DST].buf;
    p->nbytes = view[NBYTES].buf, p->seconds = view[SECONDS].buf;
    p->engine_of_lane = view[ENGINE].buf, p->loss_of_kind = view[LOSS_OF_KIND].buf;
    p->means_of = ITEMS(MEANS_OF) ? view[MEANS_OF].buf : NULL, p->loss_of_means = view[LOSS_OF_MEANS].buf;
    p->route_offsets = view[ROUTE_OFFSETS].buf, p->route_links = view[ROUTE_LINKS].buf, p->slowest = view[SLOWEST].buf;
    p->latency = view[LATENCY].buf, p->bandwidth = view[BANDWIDTH].buf;
    p->started = view[STARTED].buf, p->finished = view[FINISHED].buf;
    for (Int i = 0; i < ITEMS(LOSS_OF_KIND); i++) p->disturbing |= p->loss_of_kind[i] != 0.0;
    for (Int i = 0; i < ITEMS(LOSS_OF_MEANS); i++) p->disturbing |= p->loss_of_means[i] != 0.0;
    if (!number_engines(p)) {
        found = Py_None;
        Py_INCREF(found);
        goto out;
    }
    if (ITEMS(OFFSETS) == p->count + 1 && ITEMS(SRC) == p->count && ITEMS(DST) == p->count && ITEMS(NUMBER)) {
        p->route = p->looked_up = PyMem_Malloc(sizeof(int32_t) * (size_t)(p->count + 1));
        if (!p->route) {
            PyErr_NoMemory();
            goto out;
        }
        if (!look_up(p, view[NUMBER].buf, ITEMS(NUMBER))) {
            found = Py_None;
            Py_INCREF(found);
            goto out;
        }
    } else {
        p->route = view[ROUTE].buf;
    }
    if (ITEMS(OFFSETS) != p->count + 1 || ITEMS(AFTER) != p->offsets[p->count] || !fits(p)) {
        PyErr_SetString(PyExc_ValueError, "the columns of the schedule do not belong together");
        goto out;
    }
    int status = MORE;
    while (status == MORE && !PyErr_CheckSignals()) {
        PyThreadState *state = PyEval_SaveThread();
        status = play_on(p);
        PyEval_RestoreThread(state);
    }
    if (status == NO_MEMORY) PyErr_NoMemory();
    if (status == DONE) found = PyFloat_FromDouble(last_finish(p));
out:
    clean_up(p);
    PyMem_Free(p->looked_up);
    PyMem_Free(p);
    release_arrays(view, ARRAYS);
    return found;
}

static PyMethodDef methods[] = {
    {"play", play, METH_VARARGS, "Fill started and finished with when each action starts and finishes; return the last finish, -1 if some never finish, None if a route or an engine has no number."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_player", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__player(void) { return PyModule_Create(&module); }
