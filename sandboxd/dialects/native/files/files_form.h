/** files_form.h - a request's multipart/form-data body as files: each part that its dialect wants as one is written as
 * PUT would, whole or not at all, one after the other, while the body comes; nothing of it is held but 16 KiB. Belongs
 * to the request's loop; lives until `over` has answered, or until its client is gone. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/http/multipart.h"
#include "shared/http/server.h"

#define FILES_FORM_PARTS_MAX 1000
#define FILES_FORM_FIELD_MAX 65536 /* bytes of a part that is no file */
#define FILES_FORMS_MAX      32    /* at once, of one sandbox and route, on one loop */

enum files_form_part { FILES_FORM_REFUSED, FILES_FORM_FILE, FILES_FORM_FIELD };

/** The dialect's side. Nothing is called inside of files_form_start. */
struct files_form_events {
    /** Says what a part is to be. A FILE: into `asked` (a WRITE of no path yet) go its path, the root in which the
     * token allows that, its mode and conditions, all good until its `written`. REFUSED: with the error. */
    enum files_form_part (*part)(void *cookie, const struct http_multipart_part *part, struct files_request *asked,
                                 struct error *err);
    /** A FIELD is whole: `size` bytes and a NUL. False ends the form. NULL: there are none. */
    bool (*field)(void *cookie, const char *data, size_t size, struct error *err);
    /** What a FILE has become, a FILES_ENTRY; then, when it is there. */
    void (*entry)(void *cookie, const struct files_record *entry);
    void (*written)(void *cookie, bool is_new);
    /** To be answered: the form's end (NULL), or why it ended early; what was written stays. Frees the cookie. */
    void (*over)(void *cookie, const struct error *err);
    /** Nobody is there to be answered. Frees the cookie. */
    void (*gone)(void *cookie);
};

/** Begins to read the body of a request whose route pours, and takes charge of its end. Each file is recorded as
 *  `write` before it is begun, once more when it failed. False, with nothing begun and the cookie still the caller's:
 *  ERROR_INVALID when it is no form; ERROR_NO_CAPACITY. */
bool files_form_start(struct http_request *request, const struct files_form_events *events, void *cookie,
                      struct error *err) MUST_USE;
