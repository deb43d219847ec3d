/** enrol.h - `parley-sandboxd enrol`: turns a join token into STATE/sandboxd/node.json (protocol.md, 8 "Enrolment").
 *
 *  The key pair is made durable in STATE/sandboxd/enrolling before it is sent: an enrolment whose answer was lost is
 *  asked for again with the same pair, and answered. */
#pragma once

/** The words behind "enrol"; returns the exit status, has told what went wrong. The token comes from a file or from
 *  PARLEY_JOIN_TOKEN, never from a word: those are in every process list. */
int enrol_main(int argc, char *argv[]);
