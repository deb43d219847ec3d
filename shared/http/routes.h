/** routes.h - the compiled table of routes: which row serves a method and path, with its parameters decoded. */
#pragma once

#include "shared/http/head.h"
#include "shared/http/server.h"

/* What a token in the path stands for: /c/{token}/rest is /s/{sandbox}/rest. */
#define HTTP_SANDBOX_PREFIX "/s/{sandbox}"

#define HTTP_SEGMENTS_MAX   32
#define HTTP_PARAMETERS_MAX 8
#define HTTP_ALLOW_BYTES    96

struct http_routes;

struct http_match {
    const struct http_route *route;                   /* NULL: none */
    bool is_by_token;                                 /* came below /c/{token} */
    struct http_pair parameters[HTTP_PARAMETERS_MAX]; /* values are decoded and belong to `values` */
    size_t parameter_count;
    char *values;
};

/** Sorts and checks the rows, which must outlive the result. ERROR_INVALID names the row that is wrong or doubled. */
struct http_routes *http_routes_new(const struct http_route *routes, size_t count, struct error *err) MUST_USE;
void http_routes_free(struct http_routes *routes);
DEFINE_AUTO(http_routes)

/** The largest body that any route has held for it. */
size_t http_routes_body_max(const struct http_routes *routes) MUST_USE;

/** Finds the row for a path that http_path_check found clean. A literal segment beats {x}, {x} beats {x...}. Else
 *  ERROR_NOT_FOUND, or ERROR_METHOD with the methods there are in `allow`, or ERROR_INVALID for a parameter that holds
 *  a / and is one segment. `match` is zero before; http_match_done after. */
bool http_routes_find(const struct http_routes *routes, const char *method, const char *path, struct http_match *match,
                      char allow[static HTTP_ALLOW_BYTES], struct error *err) MUST_USE;
/** The route of a host rule, with the first `size` bytes of `host`, in small letters, as its "label". */
void http_match_host(struct http_match *match, const struct http_route *route, const char *host, size_t size);
void http_match_done(struct http_match *match);

/** Value of a parameter; NULL when there is none. */
const char *http_match_parameter(const struct http_match *match, const char *name) MUST_USE;
