/*
 * Reads what trace_client.c plays; see the header for the form. By one thread, at the start.
 */
#include "trace_script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KINDS 10000
#define MOST_ROWS 1000000
#define LINE_LENGTH 256

static const char *const words[TRACE_CALL_COUNT] = {
#define X(name, word) [TRACE_##name] = word,
    TRACE_CALLS(X)
#undef X
};

int trace_call_is_of_event(enum trace_call call)
{
    return call == TRACE_WAIT_EVENT || call == TRACE_RECORD_EVENT || call == TRACE_QUERY_EVENT ||
           call == TRACE_SYNC_EVENT;
}

struct reader {
    FILE *file;
    const char *path;
    unsigned line_number;
    char line[LINE_LENGTH];
};

static void refuse(const struct reader *reader, const char *why)
{
    fprintf(stderr, "%s: line %u: %s\n", reader->path, reader->line_number, why);
    exit(2);
}

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "no memory for the script\n");
        exit(1);
    }
    return memory;
}

static int next_line(struct reader *reader)
{
    if (fgets(reader->line, sizeof reader->line, reader->file) == NULL)
        return 0;
    reader->line_number++;
    return 1;
}

static size_t read_number(struct reader *reader, const char *word, size_t most)
{
    char found[LINE_LENGTH];
    unsigned long long value;
    if (!next_line(reader) || sscanf(reader->line, "%255s %llu", found, &value) != 2 ||
        strcmp(found, word) != 0 || value > most)
        refuse(reader, word);
    return value;
}

static struct trace_row read_row(struct reader *reader, const struct trace_script *script)
{
    struct trace_row row = {0};
    char word[LINE_LENGTH];
    unsigned long long bytes, gpu_ns, gap_ns;
    if (!next_line(reader) ||
        sscanf(reader->line, "%255s %u %u %u %u %llu %llu %llu", word, &row.stream, &row.number,
               &row.blocks, &row.threads, &bytes, &gpu_ns, &gap_ns) != 8)
        refuse(reader, "a row is a call and seven numbers");
    while (row.call < TRACE_CALL_COUNT && strcmp(word, words[row.call]) != 0)
        row.call++;
    if (row.call == TRACE_CALL_COUNT)
        refuse(reader, "no call of that name is played");
    unsigned numbers = trace_call_is_of_event(row.call) ? script->events : script->kinds;
    if (row.stream >= script->streams || (row.number != 0 && row.number >= numbers))
        refuse(reader, "no such stream, kind or event");
    if (bytes > script->bytes)
        refuse(reader, "more bytes than the script says");
    row.bytes = bytes;
    row.gpu_ns = gpu_ns;
    row.gap_ns = gap_ns;
    return row;
}

/* Reads the rows that the line just read announces. */
static struct trace_rows read_rows(struct reader *reader, const struct trace_script *script,
                                   unsigned count)
{
    if (count == 0 || count > MOST_ROWS)
        refuse(reader, "no rows, or too many");
    struct trace_rows rows = {count, need(calloc(count, sizeof *rows.rows))};
    for (unsigned i = 0; i < count; i++)
        rows.rows[i] = read_row(reader, script);
    return rows;
}

struct trace_script trace_script_read(const char *path)
{
    struct reader reader = {.file = fopen(path, "re"), .path = path};
    struct trace_script script = {0};
    if (reader.file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    if (read_number(&reader, "trace", 1) != 1)
        refuse(&reader, "not of form 1");
    script.kinds = (unsigned)read_number(&reader, "kinds", MOST_KINDS);
    script.streams = (unsigned)read_number(&reader, "streams", TRACE_MOST_HANDLES);
    script.events = (unsigned)read_number(&reader, "events", TRACE_MOST_HANDLES);
    script.bytes = read_number(&reader, "bytes", SIZE_MAX);
    script.sync_steps = (unsigned)read_number(&reader, "sync_steps", MOST_ROWS);
    while (next_line(&reader)) {
        unsigned count;
        if (sscanf(reader.line, "graph %u", &count) == 1 && script.graph.count == 0) {
            script.graph = read_rows(&reader, &script, count);
        } else if (sscanf(reader.line, "step %u", &count) == 1) {
            size_t size = (script.steps + 1) * sizeof *script.step;
            script.step = need(realloc(script.step, size));
            script.step[script.steps] = read_rows(&reader, &script, count);
            script.steps++;
        } else {
            refuse(&reader, "neither a step nor the one graph");
        }
    }
    if (script.steps == 0)
        refuse(&reader, "no step");
    fclose(reader.file);
    return script;
}
