#include "clients/c/grant_keeper.h"

#include "clients/c/grant_cache.h"
#include "clients/c/grant_call.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

static const unsigned CALL_MS = 8000;       /* a refresh; it is sent twice at most while the lock is held */
static const unsigned LOCK_WAIT_MS = 20000; /* longer than anybody holds it who is not stopped */
static const unsigned LOCK_EVERY_MS = 30;
static const unsigned TURN_MAX_MS = 60000;
static const unsigned BACKOFF_MAX_S = 60;
static const uint64_t REPLACE_FOR_MS = 60000; /* how long a refused token is tried to be replaced */
static const int64_t WAIT_MIN_MS = 500;
static const uint64_t NS_PER_MS = 1000000;

enum keeper_step { KEEPER_RESTS, KEEPER_LOCKS, KEEPER_REFRESHES, KEEPER_NEGOTIATES };

struct grant_keeper {
    struct grant_keeping keeping;
    char *key; /* in the cache */
    enum keeper_step step;
    uint64_t due_ns; /* boot time: when a rest ends, when waiting for the lock does */
    int lock;        /* held from LOCKS on; -1 */
    CURLM *multi;    /* where the transfer runs */
    struct call_transfer transfer;
    bool sent_before; /* this refresh is the second try */
    bool hurry;
    bool refused; /* the token was, since: */
    uint64_t refused_ns;
    unsigned failures;    /* in a row */
    struct error outcome; /* of the last attempt */
};

/* When the token is to be refreshed, boot time. One that has just come tells how long it lives by its own two times, so
 * that a client whose clock is wrong neither asks all the time nor too late. */
static uint64_t due_of(const struct grant *grant, bool is_new)
{
    int64_t wait_ms = grant->refresh_ms - clock_wall_ms();
    int64_t longest = grant->refresh_ms - grant->issued_ms;
    int64_t shortest = is_new ? (grant->expires_ms - grant->issued_ms) / 4 : 0;
    wait_ms = wait_ms > longest ? longest : wait_ms;
    wait_ms = wait_ms < shortest ? shortest : wait_ms;
    if (is_new && wait_ms < WAIT_MIN_MS)
        wait_ms = WAIT_MIN_MS;
    return clock_boot_ns() + (wait_ms > 0 ? (uint64_t)wait_ms * NS_PER_MS : 0);
}

struct grant_keeper *grant_keeper_new(const struct grant_keeping *keeping)
{
    struct grant_keeper *keeper = memory_new(sizeof *keeper);
    keeper->keeping = *keeping;
    keeper->key = grant_cache_key(keeping->place, keeping->request);
    keeper->lock = -1;
    keeper->due_ns = due_of(keeping->grant, false);
    return keeper;
}

static void give_lock_back(struct grant_keeper *keeper)
{
    if (keeper->lock >= 0)
        close(keeper->lock);
    keeper->lock = -1;
}

void grant_keeper_free(struct grant_keeper *keeper)
{
    if (!keeper)
        return;
    if (keeper->transfer.curl)
        curl_multi_remove_handle(keeper->multi, keeper->transfer.curl);
    call_transfer_done(&keeper->transfer);
    give_lock_back(keeper);
    free(keeper->key);
    free(keeper);
}

static void succeed(struct grant_keeper *keeper)
{
    give_lock_back(keeper);
    keeper->step = KEEPER_RESTS;
    keeper->hurry = keeper->refused = false;
    keeper->failures = 0;
    keeper->outcome = (struct error){0};
    keeper->due_ns = due_of(keeper->keeping.grant, true);
}

static void fail(struct grant_keeper *keeper, const struct error *err)
{
    give_lock_back(keeper);
    keeper->step = KEEPER_RESTS;
    keeper->hurry = false;
    keeper->outcome = *err;
    keeper->failures += keeper->failures < 16;
    uint64_t wait_s = UINT64_C(1) << (keeper->failures - 1);
    wait_s = wait_s > BACKOFF_MAX_S ? BACKOFF_MAX_S : wait_s;
    keeper->due_ns = clock_boot_ns() + wait_s * 1000 * NS_PER_MS;
}

static void store(const struct grant_keeper *keeper, const struct grant *grant)
{
    if (keeper->lock < 0)
        return; /* no cache here, or its lock is stuck: whoever reads an older token gets it refused, no worse */
    json_t *entry = grant ? grant_to_entry(grant) : NULL;
    grant_cache_store(keeper->lock, keeper->key, entry);
    json_decref(entry);
}

/* Another process may have refreshed it meanwhile. All change the file under the lock, so what differs there is newer,
 * unless our own change could not be written. */
static bool take_newer(struct grant_keeper *keeper)
{
    struct grant *grant = keeper->keeping.grant;
    json_t *entry = grant_cache_find(keeper->key);
    AUTO_GRANT other = {0};
    bool newer = grant_from_entry(&other, entry) && text_equal(other.sandbox_id, grant->sandbox_id) &&
                 !text_equal(other.jti, grant->jti) && other.issued_ms >= grant->issued_ms &&
                 other.expires_ms + GRANT_REFRESHABLE_MS > clock_wall_ms();
    if (newer)
        grant_take_token(grant, &other);
    json_decref(entry);
    return newer;
}

static void perform(struct grant_keeper *keeper, enum keeper_step step, bool started, const struct error *err)
{
    if (!started || curl_multi_add_handle(keeper->multi, keeper->transfer.curl) != CURLM_OK) {
        call_transfer_done(&keeper->transfer);
        fail(keeper, err);
        return;
    }
    keeper->step = step;
}

static void negotiate(struct grant_keeper *keeper)
{
    struct error err = {.kind = ERROR_INTERNAL, .message = "libcurl does not start"};
    struct grant_request request = *keeper->keeping.request;
    request.mode = "attach_only"; /* what runs is in the sandbox that is there: a new one would not help it */
    request.more = NULL;          /* nor would how it was wanted, which may have been changed since */
    bool started = grant_call_negotiate(&keeper->transfer, keeper->keeping.place, &request, CALL_MS, &err);
    perform(keeper, KEEPER_NEGOTIATES, started, &err);
}

static void refresh(struct grant_keeper *keeper)
{
    struct error err = {.kind = ERROR_INTERNAL, .message = "libcurl does not start"};
    const struct grant_keeping *keeping = &keeper->keeping;
    bool started =
        grant_call_refresh(&keeper->transfer, keeping->place, keeping->request, keeping->grant, CALL_MS, &err);
    perform(keeper, KEEPER_REFRESHES, started, &err);
}

static void on_locked(struct grant_keeper *keeper)
{
    if (take_newer(keeper)) {
        keeper->refused = keeper->hurry = false;
        if (clock_wall_ms() < keeper->keeping.grant->refresh_ms) {
            succeed(keeper);
            return;
        }
    }
    keeper->sent_before = false;
    if (keeper->refused)
        negotiate(keeper);
    else
        refresh(keeper);
}

/* A refresh without the lock could present a token that somebody else has just spent; negotiating hurts nobody. */
static void on_lock_stuck(struct grant_keeper *keeper)
{
    struct error err = {0};
    error_set(&err, ERROR_TIMEOUT, "another process holds the lock of the grant cache for too long");
    if (keeper->keeping.only_refresh)
        fail(keeper, &err);
    else
        negotiate(keeper);
}

static unsigned ms_until(uint64_t due_ns, unsigned most)
{
    uint64_t now = clock_boot_ns();
    uint64_t left = due_ns > now ? (due_ns - now) / NS_PER_MS + 1 : 0;
    return left < most ? (unsigned)left : most;
}

unsigned grant_keeper_turn(struct grant_keeper *keeper, CURLM *multi)
{
    keeper->multi = multi;
    if (keeper->step == KEEPER_RESTS) {
        if (clock_boot_ns() < keeper->due_ns)
            return ms_until(keeper->due_ns, TURN_MAX_MS);
        keeper->step = KEEPER_LOCKS;
        keeper->due_ns = clock_boot_ns() + LOCK_WAIT_MS * NS_PER_MS;
    }
    if (keeper->step == KEEPER_LOCKS) {
        if (grant_cache_lock(&keeper->lock, 0))
            on_locked(keeper);
        else if (clock_boot_ns() >= keeper->due_ns)
            on_lock_stuck(keeper);
    }
    if (keeper->step == KEEPER_LOCKS)
        return LOCK_EVERY_MS;
    return keeper->step == KEEPER_RESTS ? ms_until(keeper->due_ns, TURN_MAX_MS) : TURN_MAX_MS;
}

/* The reply was lost, or never written: the negotiator may have done it. */
static bool is_unsure(enum error_kind kind)
{
    return kind == ERROR_NODE_UNREACHABLE || kind == ERROR_TIMEOUT;
}

static void on_refresh_failed(struct grant_keeper *keeper, const struct error *err)
{
    if (is_unsure(err->kind) && !keeper->sent_before) {
        keeper->sent_before = true; /* the same token again gets the same successor */
        refresh(keeper);
        return;
    }
    if (grant_call_may_pass(err->kind)) {
        fail(keeper, err);
        return;
    }
    store(keeper, NULL);
    if (err->kind == ERROR_TOKEN_REUSED && keeper->keeping.warn)
        keeper->keeping.warn(keeper->keeping.cookie, grant_reused_sentence);
    if (keeper->keeping.only_refresh)
        fail(keeper, err);
    else
        negotiate(keeper);
}

static void on_made(struct grant_keeper *keeper, struct grant *made)
{
    struct grant *grant = keeper->keeping.grant;
    store(keeper, made);
    if (!text_equal(made->sandbox_id, grant->sandbox_id)) {
        struct error err = {0};
        error_set(&err, ERROR_GONE, "the sandbox has ended; thread %s has another one now", grant->thread);
        fail(keeper, &err);
        return;
    }
    grant_take_token(grant, made);
    succeed(keeper);
}

bool grant_keeper_done(struct grant_keeper *keeper, CURL *curl, CURLcode code)
{
    if (!curl || curl != keeper->transfer.curl)
        return false;
    AUTO_GRANT made = {0};
    struct error err = {0};
    bool was_refresh = keeper->step == KEEPER_REFRESHES;
    if (grant_call_finish(&made, &keeper->transfer, code, keeper->keeping.grant->thread, &err))
        on_made(keeper, &made);
    else if (was_refresh)
        on_refresh_failed(keeper, &err);
    else
        fail(keeper, &err);
    return true;
}

void grant_keeper_hurry(struct grant_keeper *keeper)
{
    keeper->hurry = true;
    if (keeper->step == KEEPER_RESTS)
        keeper->due_ns = 0;
}

void grant_keeper_refused(struct grant_keeper *keeper)
{
    if (!keeper->refused)
        keeper->refused_ns = clock_boot_ns();
    keeper->refused = true;
    keeper->outcome = (struct error){0};
    grant_keeper_hurry(keeper);
}

enum grant_keeper_state grant_keeper_state(const struct grant_keeper *keeper, struct error *err)
{
    bool wanted = keeper->refused || keeper->hurry;
    if (keeper->step != KEEPER_RESTS || (wanted && keeper->outcome.kind == ERROR_NONE))
        return GRANT_KEEPER_TRYING;
    if (keeper->outcome.kind == ERROR_NONE || (!keeper->refused && !keeper->keeping.only_refresh))
        return GRANT_KEEPER_FRESH;
    bool again = !keeper->keeping.only_refresh && grant_call_may_pass(keeper->outcome.kind) &&
                 clock_boot_ns() - keeper->refused_ns < REPLACE_FOR_MS * NS_PER_MS;
    if (again)
        return GRANT_KEEPER_TRYING;
    if (err)
        *err = keeper->outcome;
    return GRANT_KEEPER_FAILED;
}
