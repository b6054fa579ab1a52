#include "graph_program.h"

#include <stdlib.h>

#include "graph_memory.h"

enum step_kind { STEP_SUBMIT, STEP_MOVE, STEP_CALL, STEP_RECORD, STEP_WAIT, STEP_MEET };

struct step {
    enum step_kind kind;
    bool later; /* bytes that move when the stream gets there */
    struct sim_submission submission;
    struct graph_node work;
};

struct graph_program {
    unsigned int references;
    struct step *steps;
    size_t count;
    struct graph_memory_plan memory;
    struct user_reference *objects;
    bool ordered;
};

/* What is under way while a program is made. */
struct maker {
    struct graph_program *program;
    struct step *open;             /* takes in the next submission of its kind */
    const struct graph_node *last; /* that `open` took in */
    bool later;
};

static struct step *add_step(struct maker *maker, enum step_kind kind)
{
    struct graph_program *program = maker->program;
    if ((program->count & (program->count - 1)) == 0) {
        size_t room = program->count ? 2 * program->count : 1;
        ptrdiff_t open = maker->open ? maker->open - program->steps : -1;
        struct step *grown = realloc(program->steps, room * sizeof *grown);
        if (!grown)
            return NULL;
        program->steps = grown;
        maker->open = open < 0 ? NULL : grown + open;
    }
    struct step *step = &program->steps[program->count++];
    *step = (struct step){.kind = kind, .work.type = CU_GRAPH_NODE_TYPE_EMPTY};
    if (kind != STEP_SUBMIT)
        program->ordered = true;
    return step;
}

/* Returns what a node takes, less what passes while the kernel ahead of it ends, if a programmatic edge leads
 * from there. */
static uint64_t cost_of(const struct maker *maker, const struct graph_node *node)
{
    for (size_t i = 0; i < node->links.dependency_count; i++) {
        const struct graph_edge *edge = &node->links.dependencies[i];
        if (edge->node != maker->last || edge->data.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
            continue;
        uint64_t overlap_ns = launch_overlap_ns(node->context->device, node->cost_ns);
        return node->cost_ns -
               (overlap_ns < edge->node->cost_ns ? overlap_ns : edge->node->cost_ns);
    }
    return node->cost_ns;
}

static bool add_cost(struct maker *maker, const struct graph_node *node)
{
    bool transfer = node->kind == SIM_OPERATION_TRANSFER;
    if (!maker->open || (maker->open->submission.kind == SIM_OPERATION_TRANSFER) != transfer) {
        struct step *step = add_step(maker, STEP_SUBMIT);
        if (!step)
            return false;
        step->submission.kind = node->kind;
        maker->open = step;
    }
    struct sim_submission *submission = &maker->open->submission;
    if (__builtin_add_overflow(submission->cost_ns, cost_of(maker, node), &submission->cost_ns))
        submission->cost_ns = UINT64_MAX; /* the queue has a limit of its own */
    maker->last = node;
    submission->kernels += node->kernels;
    if (node->kernels)
        submission->kind = SIM_OPERATION_KERNEL;
    return true;
}

/* A step with a copy of the node's work; `barrier`: nothing passes it. */
static bool add_work(struct maker *maker, enum step_kind kind, const struct graph_node *node,
                     bool barrier)
{
    struct graph_node work;
    if (!graph_work_copy(&work, node))
        return false;
    struct step *step = add_step(maker, kind);
    if (!step) {
        graph_work_release(&work);
        return false;
    }
    step->work = work;
    if (barrier) {
        maker->open = NULL;
        maker->last = NULL;
    }
    step->later = maker->later;
    return true;
}

static bool add_graph(struct maker *maker, struct CUgraph_st *graph);

static bool add_node(struct maker *maker, const struct graph_node *node)
{
    if (node->disabled)
        return true;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_HOST:
        maker->later = true;
        return add_work(maker, STEP_CALL, node, true);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return add_work(maker, STEP_RECORD, node, true);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        maker->later = true;
        return add_work(maker, STEP_WAIT, node, true);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        maker->later = true;
        return add_work(maker, STEP_MOVE, node, true);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        maker->program->ordered = true;
        return graph_memory_plan_add(&maker->program->memory, node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_graph(maker, node->params.child);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return !graph_chosen_body(node) || add_graph(maker, graph_chosen_body(node));
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return true;
    default: /* kernels, copies, fills */
        if (node->function && node->function->meets)
            return add_work(maker, STEP_MEET, node, true);
        if (node->run && !add_work(maker, STEP_MOVE, node, false))
            return false;
        return add_cost(maker, node);
    }
}

static bool add_graph(struct maker *maker, struct CUgraph_st *graph)
{
    struct graph_node **order = malloc((graph->count + 1) * sizeof(struct graph_node *));
    bool good = order != NULL;
    if (good)
        graph_sort(graph, order);
    for (size_t i = 0; good && i < graph->count; i++)
        good = add_node(maker, order[i]);
    free(order);
    return good;
}

struct graph_program *graph_program_make(struct CUgraph_st *graph)
{
    struct maker maker = {.program = calloc(1, sizeof *maker.program)};
    if (!maker.program)
        return NULL;
    maker.program->references = 1;
    maker.program->memory.owner = graph->id;
    if (add_graph(&maker, graph) && user_references_collect(&maker.program->objects, graph))
        return maker.program;
    graph_program_drop(maker.program);
    return NULL;
}

void graph_program_drop(struct graph_program *program)
{
    if (__atomic_sub_fetch(&program->references, 1, __ATOMIC_ACQ_REL))
        return;
    for (size_t i = 0; i < program->count; i++)
        graph_work_release(&program->steps[i].work);
    free(program->steps);
    graph_memory_plan_clear(&program->memory);
    user_references_drop(&program->objects);
    free(program);
}

bool graph_program_is_ordered(const struct graph_program *program)
{
    return program->ordered;
}

void graph_program_prepare(const struct graph_program *program, unsigned long long stream_id)
{
    if (program->memory.any)
        graph_memory_prepare(&program->memory, stream_id);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Something that the stream will get to: a step, or with none the end of the launch. */
struct ticket {
    struct graph_program *program;
    const struct step *step;
    struct graph_memory_lease lease; /* at the end */
};

static void use_ticket(void *argument)
{
    struct ticket *ticket = argument;
    if (ticket->step)
        ticket->step->work.run(&ticket->step->work);
    else if (ticket->program->memory.any)
        graph_memory_end(&ticket->lease);
    graph_program_drop(ticket->program);
    free(ticket);
}

static CUresult call_later(struct graph_program *program, const struct step *step,
                           const struct graph_memory_lease *lease, struct CUstream_st *stream)
{
    struct ticket *ticket = malloc(sizeof *ticket);
    REFUSE_IF(!ticket, CUDA_ERROR_OUT_OF_MEMORY);
    *ticket = (struct ticket){.program = program, .step = step};
    if (lease)
        ticket->lease = *lease;
    __atomic_add_fetch(&program->references, 1, __ATOMIC_RELAXED);
    CUresult result = stream_call(stream, use_ticket, ticket);
    if (result != CUDA_SUCCESS) {
        graph_program_drop(program);
        free(ticket);
    }
    return result;
}

static CUresult do_step(struct graph_program *program, const struct step *step,
                        struct CUstream_st *stream)
{
    switch (step->kind) {
    case STEP_SUBMIT:
        stream_submit(stream, &step->submission);
        return CUDA_SUCCESS;
    case STEP_MOVE:
        if (step->later || stream_calls_pending())
            return call_later(program, step, NULL, stream);
        step->work.run(&step->work);
        return CUDA_SUCCESS;
    case STEP_CALL:
        return stream_call(stream, step->work.params.host.fn, step->work.params.host.userData);
    case STEP_RECORD:
        return cuEventRecord(step->work.params.event, stream);
    case STEP_WAIT:
        return cuStreamWaitEvent(stream, step->work.params.event, 0);
    case STEP_MEET:
        return meeting_launch(stream, step->work.function,
                              &(struct launch){.params = step->work.params.kernel.kernelParams,
                                               .extra = step->work.params.kernel.extra},
                              0);
    }
    return CUDA_ERROR_UNKNOWN;
}

CUresult graph_program_launch(struct graph_program *program, struct CUstream_st *stream,
                              bool frees_first)
{
    struct graph_memory_lease lease = {0};
    CUresult result = CUDA_SUCCESS;
    if (program->memory.any)
        result = graph_memory_begin(&program->memory, stream->id, frees_first, &lease);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; i < program->count && result == CUDA_SUCCESS; i++)
        result = do_step(program, &program->steps[i], stream);
    if (!program->memory.any && !program->objects)
        return result;
    CUresult end = call_later(program, NULL, &lease, stream);
    if (end != CUDA_SUCCESS && program->memory.any)
        graph_memory_end(&lease);
    return result == CUDA_SUCCESS ? end : result;
}
