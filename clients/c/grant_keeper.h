/** grant_keeper.h - keeps one grant fresh for as long as something uses it: refreshes it when that is due, in steps of
 *  the user's own curl_multi loop that never block. Processes that share the cache refresh one after the other; who
 *  finds that another has done it takes that token, so that no spent token is ever presented. */
#pragma once

#include "clients/c/grant.h"

#include <curl/curl.h>

struct grant_keeper;

/** What it keeps; all is borrowed and outlives the keeper. */
struct grant_keeping {
    struct grant *grant; /* changed in place, inside grant_keeper_done and grant_keeper_turn only */
    const struct place *place;
    const struct grant_request *request;
    bool only_refresh; /* a refused refresh is the end; else the same sandbox is negotiated anew */
    void (*warn)(void *cookie, const char *sentence); /* what the user must be told; NULL none */
    void *cookie;
};

struct grant_keeper *grant_keeper_new(const struct grant_keeping *keeping) MUST_USE;

/** Gives up what is under way: it is off the loop then. NULL is allowed. */
void grant_keeper_free(struct grant_keeper *keeper);
DEFINE_AUTO(grant_keeper)

/** Begins on `multi` what is due; milliseconds until it wants to be called again, at most 60,000. */
unsigned grant_keeper_turn(struct grant_keeper *keeper, CURLM *multi) MUST_USE;

/** A transfer of the loop ended and was taken off it: true when it was the keeper's, and is now dealt with. */
bool grant_keeper_done(struct grant_keeper *keeper, CURL *curl, CURLcode code) MUST_USE;

/** Refresh as soon as possible. */
void grant_keeper_hurry(struct grant_keeper *keeper);

/** The grant's token was refused: another is needed, and refreshing this one is pointless. */
void grant_keeper_refused(struct grant_keeper *keeper);

enum grant_keeper_state {
    GRANT_KEEPER_FRESH,  /* the token is not known to be bad, nothing is under way */
    GRANT_KEEPER_TRYING, /* something is, or will be tried again */
    GRANT_KEEPER_FAILED  /* the last attempt failed, *err says why; after `refused`: there will be no other token */
};

enum grant_keeper_state grant_keeper_state(const struct grant_keeper *keeper, struct error *err) MUST_USE;
