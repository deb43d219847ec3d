#include "negotiator/leasing/naming.h"

#include "shared/base/random.h"

#include <stdio.h>

static const char *const ADJECTIVES[] = {
    "able",   "amber",  "ample", "azure", "bold",   "brave", "brief",  "bright", "brisk",  "calm",  "civil",
    "clear",  "cosy",   "crisp", "deft",  "eager",  "early", "fair",   "fleet",  "fond",   "frank", "fresh",
    "gentle", "glad",   "grand", "green", "happy",  "hardy", "honest", "humble", "ideal",  "jolly", "keen",
    "kind",   "lively", "loyal", "lucid", "merry",  "mild",  "modest", "neat",   "nimble", "noble", "patient",
    "plain",  "polite", "prime", "proud", "quick",  "quiet", "rapid",  "ready",  "robust", "round", "sharp",
    "silver", "sleek",  "smart", "solid", "steady", "sunny", "swift",  "tidy",   "warm"};
static const char *const NOUNS[] = {
    "acorn",  "alder",  "anchor",  "aspen",  "badger",  "beacon", "beaver", "birch",  "brook",  "cedar",  "cliff",
    "comet",  "coral",  "crane",   "creek",  "delta",   "dune",   "eagle",  "egret",  "ember",  "falcon", "fern",
    "finch",  "fjord",  "forest",  "fox",    "garden",  "glade",  "grove",  "harbor", "hawk",   "hazel",  "heron",
    "island", "ivy",    "kite",    "lagoon", "lake",    "lark",   "maple",  "marsh",  "meadow", "moss",   "oak",
    "orchid", "osprey", "otter",   "owl",    "pebble",  "pine",   "plover", "pond",   "raven",  "reef",   "ridge",
    "river",  "robin",  "sparrow", "spruce", "thistle", "tulip",  "valley", "willow", "wren"};

void naming_pick(char to[static SANDBOX_NAME_BYTES], bool numbered)
{
    const char *adjective = ADJECTIVES[random_below(sizeof ADJECTIVES / sizeof *ADJECTIVES)];
    const char *noun = NOUNS[random_below(sizeof NOUNS / sizeof *NOUNS)];
    if (numbered)
        snprintf(to, SANDBOX_NAME_BYTES, "%s-%s-%u", adjective, noun, 2 + random_below(9998));
    else
        snprintf(to, SANDBOX_NAME_BYTES, "%s-%s", adjective, noun);
}
