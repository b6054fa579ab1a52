/* How much a JSON text holds, without decoding it: what a text decodes to can take forty times its
 * own memory, so a server looks before it decodes. */
#ifndef VGPU_PLACEMENT_JSON_COUNT_H
#define VGPU_PLACEMENT_JSON_COUNT_H

#include <stdint.h>

#define JSON_ALL_LEVELS 2147483647

/* Returns how many values the lists and objects of a text hold that are nested at most `levels` deep.
 * An empty one counts as one value. A malformed text gives some number, and at least as many as a
 * decoder finds before it refuses the text. */
int64_t json_count(const char *text, int64_t size, int32_t levels);

#endif
