/** files_ops.h - what is done to one path by name ("chmod"): in POST /files, and in a batch. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/capability/scope.h"
#include "shared/http/server.h"

/** A change that is being read. Texts that `asked` points to belong to it, or to the request's identity. */
struct files_change {
    struct http_request *request;
    struct files_request asked; /* begun: path and root (files_request_begin) */
    json_t *body;               /* the op's fields; ours */
    char *path, *to;
    int descriptor; /* of an edit's texts; -1: none */
};

void files_change_done(struct files_change *change);
#define AUTO_FILES_CHANGE __attribute__((cleanup(files_change_done))) struct files_change

struct files_op {
    const char *name;
    enum scope_verb verb; /* needed at the path */
    bool changes;         /* its name is the audit's action */
    /* Reads the body's fields, all of which must be known, into `asked`. INVALID, CAPABILITY_DENIED, FORBIDDEN,
     * TOO_LARGE, PRECONDITION. */
    bool (*read)(struct files_change *change, struct error *err);
};

enum { FILES_OPS_COUNT = 7, FILES_OPS_OF_POST = 5 /* the first ones: DELETE and ?stat=1 are requests of their own */ };
extern const struct files_op FILES_OPS[FILES_OPS_COUNT];
