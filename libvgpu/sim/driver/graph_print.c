/* Graphs as text for Graphviz. Graphs inside nodes become clusters. */
#include <stdio.h>

#include "graph.h"

static const char *type_name(CUgraphNodeType type)
{
    static const char *const names[] = {"KERNEL",         "MEMCPY",       "MEMSET",
                                        "HOST",           "GRAPH",        "EMPTY",
                                        "WAIT_EVENT",     "EVENT_RECORD", "EXT_SEMAS_SIGNAL",
                                        "EXT_SEMAS_WAIT", "MEM_ALLOC",    "MEM_FREE",
                                        "BATCH_MEM_OP",   "CONDITIONAL"};
    return names[type];
}

static const char *side_name(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST ? "H" : type == CU_MEMORYTYPE_ARRAY ? "A" : "D";
}

static void print_words(FILE *file, const struct graph_node *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (node->function)
            fprintf(file, "\\n%s", node->function->name);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        fprintf(file, "\\n%sto%s", side_name(node->params.copy.srcMemoryType),
                side_name(node->params.copy.dstMemoryType));
        return;
    default:
        return;
    }
}

static void print_details(FILE *file, const struct graph_node *node)
{
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        const CUDA_KERNEL_NODE_PARAMS *kernel = &node->params.kernel;
        fprintf(file, "\\ngrid %ux%ux%u block %ux%ux%u shared %u", kernel->gridDimX,
                kernel->gridDimY, kernel->gridDimZ, kernel->blockDimX, kernel->blockDimY,
                kernel->blockDimZ, kernel->sharedMemBytes);
        return;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        fprintf(file, "\\n%zux%zux%zu", node->params.copy.WidthInBytes, node->params.copy.Height,
                node->params.copy.Depth);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        fprintf(file, "\\nvalue %u, %zux%zu of %u", node->params.fill.value,
                node->params.fill.width, node->params.fill.height, node->params.fill.elementSize);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        fprintf(file, "\\n%zu bytes at 0x%llx", node->params.allocation.bytesize,
                node->params.allocation.dptr);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        fprintf(file, "\\n0x%llx", node->params.allocation.dptr);
        return;
    default:
        return;
    }
}

static void print_graph(FILE *file, const struct CUgraph_st *graph, unsigned int flags)
{
    fprintf(file, "subgraph cluster_%llu {\nlabel=\"graph_%llu\";\n", graph->id, graph->id);
    for (const struct graph_node *node = graph->first; node; node = node->links.next) {
        fprintf(file, "node_%llu [shape=box, label=\"%llu %s", node->links.id, node->links.id,
                type_name(node->type));
        print_words(file, node);
        if (flags & ~(unsigned int)CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)
            print_details(file, node);
        if (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE))
            fprintf(file, "\\n%p", (const void *)node);
        fputs("\"];\n", file);
        for (size_t i = 0; i < node->links.dependency_count; i++)
            fprintf(file, "node_%llu -> node_%llu;\n", node->links.dependencies[i].node->links.id,
                    node->links.id);
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            print_graph(file, node->params.child, flags);
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            for (unsigned int i = 0; i < node->params.conditional.size; i++)
                print_graph(file, node->params.conditional.phGraph_out[i], flags);
    }
    fputs("}\n", file);
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || !path);
    FILE *file = fopen(path, "we");
    REFUSE_IF(!file, CUDA_ERROR_OPERATING_SYSTEM);
    fputs("digraph dot {\n", file);
    print_graph(file, graph, flags);
    fputs("}\n", file);
    bool good = !ferror(file);
    return fclose(file) == 0 && good ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
