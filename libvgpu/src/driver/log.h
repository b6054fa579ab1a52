/* Lines on stderr, for the program's user: each begins "libvgpu:", is written by one write(2) and
 * is at most LOG_LINE_BYTES long; at most LOG_LINES_PER_SECOND leave a process, and the same text
 * once a second. Level by VGPU_LOG (error|warn|info|debug, default warn), read once. No allocation,
 * no lock; callable anywhere but on the launch path.
 *
 * stderr is the program's: it may be a pipe that nobody reads or that nobody holds open any more. A
 * line that would wait there is dropped, and the signal for a broken pipe, which would end a
 * program that never wrote a word, is taken back before it is delivered. */
#ifndef VGPU_LOG_H
#define VGPU_LOG_H

#define LOG_LINE_BYTES 512
#define LOG_LINES_PER_SECOND 20

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
