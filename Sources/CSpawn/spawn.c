#include "guardian_spawn.h"
