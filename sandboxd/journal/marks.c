#include "sandboxd/journal/marks.h"
