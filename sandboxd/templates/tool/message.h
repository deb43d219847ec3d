/** message.h - what a jailed child tells its parent: packets of one fixed size. The parent checks every field of each;
 *  the child may have been taken over by what it read. */
#pragma once

#include "sandboxd/templates/templates.h"

#define IMAGE_USER_BYTES      128
#define MESSAGE_PACKAGES_MAX  100000U
#define MESSAGE_OTHERS_MAX    1000U
#define MESSAGE_PACKAGE_BYTES 128 /* of a name or a version */

enum message_type {
    MESSAGE_PROGRESS = 1, /* a layer is about to be read */
    MESSAGE_TEXT,         /* one line of a program that runs inside */
    MESSAGE_PACKAGE,
    MESSAGE_RESULT, /* the last one, when all went well */
    MESSAGE_FAILED  /* the last one, when not */
};

struct message_progress {
    uint32_t layer, layers; /* from 1 */
    uint64_t entries, bytes;
};

struct message_package {
    char name[MESSAGE_PACKAGE_BYTES], version[MESSAGE_PACKAGE_BYTES], architecture[32];
};

struct message_result {
    struct template_record record;         /* without name, magic, version, checksum, created_ms */
    char reference[TEMPLATE_SOURCE_BYTES]; /* what the image calls itself */
    char package_manager[16];              /* "dpkg", "apk", "" */
    uint32_t left_out;                     /* variables, or the entrypoint, that did not fit */
    uint32_t packages;
};

struct message {
    uint32_t type, reserved;
    union {
        struct message_progress progress;
        char text[256];
        struct message_package package;
        struct message_result result;
        struct error failed;
    } as;
};

/** Whether all that the parent uses of it is what it may be: texts ended and printable, numbers in range. A text's
 * other characters are turned into '?' rather than refused. INVALID. */
bool message_check(struct message *message, struct error *err) MUST_USE;

/** Ends the text, and makes '?' of control characters and of what is not UTF-8: they do things to a terminal. */
void message_make_printable(char *text, size_t size);

/** Sends it whole. Child's half: a parent that is gone ends the child. */
void message_send(int channel, const struct message *message);
