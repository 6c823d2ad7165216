#ifndef GUARDIAN_SPAWN_H
#define GUARDIAN_SPAWN_H
#endif
