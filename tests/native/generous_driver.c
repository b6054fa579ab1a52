/* A library in front of a simulated one, which it needs by its path and to which it leaves all else: it answers
 * success to every call of which a pointer is left out, and does nothing. ROWS, which the test makes, names the calls
 * and, in a bit for each of the first six arguments, their pointers. With NAME_ALONE there is nothing in it,
 * and it stands in for the simulated one when the other is linked. */
#include <dlfcn.h>

#ifndef NAME_ALONE
__attribute__((used)) void *find_next(const char *symbol)
{
    return dlsym(dlopen(SIMULATED, RTLD_LAZY | RTLD_NOLOAD), symbol);
}

#define TEST(pointers, bit, name) \
    "    .if (" #pointers ") & " #bit "\n    testq %" name ", %" name "\n    jz 9f\n    .endif\n"
#define EACH(symbol, pointers) \
    __asm__(".pushsection .text\n.globl " #symbol "\n.type " #symbol ", @function\n" #symbol \
            ":\n" TEST(pointers, 1, "rdi") TEST(pointers, 2, "rsi") TEST(pointers, 4, "rdx") \
                TEST(pointers, 8, "rcx") TEST(pointers, 16, "r8") TEST( \
                    pointers, 32, \
                    "r9") "    pushq %rdi\n    pushq %rsi\n    pushq %rdx\n    pushq %rcx\n" \
                          "    pushq %r8\n    pushq %r9\n    subq $8, %rsp\n" \
                          "    leaq 8f(%rip), %rdi\n    call find_next\n    movq %rax, %r11\n" \
                          "    addq $8, %rsp\n    popq %r9\n    popq %r8\n    popq %rcx\n" \
                          "    popq %rdx\n    popq %rsi\n    popq %rdi\n    jmpq *%r11\n" \
                          "9:  xorl %eax, %eax\n    ret\n8:  .asciz \"" #symbol \
                          "\"\n.size " #symbol ", .-" #symbol "\n.popsection\n");
ROWS
#endif
