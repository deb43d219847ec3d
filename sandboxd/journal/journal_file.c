#include "sandboxd/journal/journal_file.h"
