/* Searches the model of the ledger for a state that must not be.
 *
 *   ledger_model quick|all|SCENARIO [FAULT]
 *
 * Exits 0 when everything holds, 1 after telling what leads to a state that does not, 2 for a name
 * that it does not know. FAULT plants a fault that the search must find. */
#include <stdio.h>
#include <string.h>

#include "search.h"

#define RESERVE_TWICE {{RESERVE, 4}, {RESERVE, 2}}
#define RESERVE_RELEASE(bytes) {{RESERVE, bytes}, {RELEASE_ALL, 0}}
#define CLAIM_RESERVE(bytes) \
    { \
        {CLAIM, 0}, \
        { \
            RESERVE, bytes \
        } \
    }
#define CLAIM_RESERVE_RELEASE(bytes) {{CLAIM, 0}, {RESERVE, bytes}, {RELEASE_ALL, 0}}

/* QUICK: below half a million states each. OPEN: shows a fault that is known and not fixed;
 * searched by its name only. */
enum part { QUICK, FULL, OPEN };

struct named {
    struct scenario scenario;
    enum part part;
};

/* name, slots, threads, process and slot of each, operations of each, crashes, limits */
static const struct named scenarios[] = {
    {{"reused",
      2,
      3,
      {0, 1, 2},
      {0, 1, NO_SLOT},
      {RESERVE_RELEASE(3), RESERVE_TWICE, CLAIM_RESERVE_RELEASE(2)},
      2,
      8,
      5,
      0,
      false},
     QUICK},
    {{"threads",
      2,
      3,
      {0, 0, 1},
      {0, 0, 1},
      {RESERVE_RELEASE(3), RESERVE_RELEASE(4), RESERVE_RELEASE(2)},
      2,
      8,
      5,
      0,
      false},
     QUICK},
    {{"raised",
      3,
      3,
      {0, 1, 2},
      {0, 1, 2},
      {RESERVE_RELEASE(3), RESERVE_TWICE, RESERVE_RELEASE(2)},
      2,
      5,
      8,
      0,
      false},
     QUICK},
    {{"lowered",
      3,
      3,
      {0, 1, 2},
      {0, 1, 2},
      {RESERVE_RELEASE(3), RESERVE_TWICE, RESERVE_RELEASE(2)},
      2,
      8,
      5,
      0,
      false},
     FULL},
    {{"joined",
      3,
      3,
      {0, 1, 2},
      {0, 1, NO_SLOT},
      {RESERVE_RELEASE(3), RESERVE_TWICE, CLAIM_RESERVE_RELEASE(2)},
      2,
      8,
      5,
      0,
      false},
     FULL},
    {{"longer",
      3,
      3,
      {0, 1, 2},
      {0, 1, NO_SLOT},
      {{{RESERVE, 3}, {RELEASE_ALL, 0}, {RESERVE, 4}},
       {{RESERVE, 4}, {RESERVE, 2}, {RELEASE_ALL, 0}},
       {{CLAIM, 0}, {RESERVE, 2}, {RELEASE_ALL, 0}, {RESERVE, 5}}},
      2,
      8,
      5,
      0,
      false},
     FULL},
    {{"four",
      3,
      4,
      {0, 1, 2, 3},
      {0, 1, NO_SLOT, NO_SLOT},
      {RESERVE_RELEASE(3), {{RESERVE, 4}}, CLAIM_RESERVE(2), CLAIM_RESERVE(3)},
      2,
      8,
      5,
      0,
      false},
     FULL},
    {{"kept",
      2,
      3,
      {0, 1, 2},
      {0, 1, NO_SLOT},
      {RESERVE_RELEASE(3), RESERVE_TWICE, CLAIM_RESERVE_RELEASE(2)},
      1,
      8,
      5,
      0,
      true},
     QUICK},
    {{"shared",
      3,
      3,
      {0, 1, 2},
      {1, 2, NO_SLOT},
      {{{LEAVE, 0}}, {{JOIN, 0}, {LEAVE, 0}}, {{CLAIM, 0}, {JOIN, 0}}},
      1,
      8,
      8,
      3,
      false},
     QUICK},
    {{"shared-reserve",
      3,
      3,
      {0, 1, 2},
      {NO_SLOT, 2, NO_SLOT},
      {{{LEAVE, 0}}, {{JOIN, 0}, {LEAVE, 0}}, {{CLAIM, 0}, {RESERVE, 6}}},
      2,
      8,
      8,
      3,
      false},
     OPEN},
    {{"shared-refuse",
      3,
      4,
      {0, 1, 2, 3},
      {NO_SLOT, NO_SLOT, 1, 2},
      {{{LEAVE, 0}}, {{JOIN, 0}}, {{RESERVE, 5}}, {{RESERVE, 3}, {RELEASE_ALL, 0}}},
      1,
      8,
      8,
      3,
      false},
     OPEN},
};

static const char *const fault_names[FAULT_COUNT] = {
    [FAULT_NONE] = "none",
    [FAULT_NO_SECOND_LIMIT] = "no-second-limit",
    [FAULT_REAP_ANY_GEN] = "reap-any-gen",
    [FAULT_NO_PARITY] = "no-parity",
    [FAULT_NO_SECOND_GEN] = "no-second-gen",
    [FAULT_NO_COUNT] = "no-count",
    [FAULT_UNDO_REFUSES] = "undo-refuses",
    [FAULT_NO_HELP] = "no-help",
    [FAULT_LIFE_FIRST] = "life-first",
    [FAULT_JOIN_SAME_GEN] = "join-same-gen",
    [FAULT_JOIN_SAME_TOTAL] = "join-same-total",
    [FAULT_NO_LOOK] = "no-look",
};

static bool plant(const char *name)
{
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        if (strcmp(name, fault_names[fault]) == 0) {
            planted_fault = (enum fault)fault;
            return true;
        }
    return false;
}

static const char *search(const struct scenario *searched)
{
    scenario = searched;
    struct search_result result = search_run();
    printf("%s: %llu states: %s\n", searched->name, (unsigned long long)result.states,
           result.wrong ? result.wrong : "everything holds");
    fflush(stdout);
    return result.wrong;
}

int main(int argc, char **argv)
{
    if (argc < 2 || (argc > 2 && !plant(argv[2]))) {
        fprintf(stderr, "ledger_model quick|all|SCENARIO [FAULT]\n");
        return 2;
    }
    int searched = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct named *named = &scenarios[i];
        bool is_named = strcmp(argv[1], named->scenario.name) == 0;
        bool is_quick = strcmp(argv[1], "quick") == 0 && named->part == QUICK;
        bool is_one_of_all = strcmp(argv[1], "all") == 0 && named->part != OPEN;
        if (!is_named && !is_quick && !is_one_of_all)
            continue;
        searched++;
        if (search(&named->scenario) != NULL)
            return 1;
    }
    return searched == 0 ? 2 : 0;
}
