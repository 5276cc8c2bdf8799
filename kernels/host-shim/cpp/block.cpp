#include "block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#ifdef CONDPROG_THREADS
#include <barrier>
#include <thread>
#elif !defined(__x86_64__) || defined(CONDPROG_UCONTEXT)
#undef CONDPROG_UCONTEXT
#define CONDPROG_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" {
extern char __start_condprog_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_condprog_shared[] __attribute__((weak, visibility("hidden")));
}

namespace block {

Grid grid;

namespace {

const uint32_t WARP = 32;

std::vector<Thread> threads;
void (*kernel_)(const void*);
const void* argument_;

void start_block(uint32_t index) {
    grid.block = {index, 0, 0};
    if (__start_condprog_shared)
        memset(__start_condprog_shared, 0xa5, (size_t)(__stop_condprog_shared - __start_condprog_shared));
    for (uint32_t i = 0; i < grid.threads.x; i++) threads[i] = {{i, 0, 0}, Wait::None, 0, {0, 0}, 0};
}

void start_grid(const Launch& launch, void (*kernel)(const void*), const void* argument) {
    const uint32_t count = launch.threads;
    if (count == 0 || count > 1024 || count % WARP != 0) fail("block size is not 1 to 32 whole warps", (int)count);
    grid.blocks = {launch.blocks, 1, 1};
    grid.threads = {count, 1, 1};
    threads.resize(count);
    kernel_ = kernel;
    argument_ = argument;
}

} // namespace

void fail(const char* message, int detail) {
    fprintf(stderr, "cuda on host: %s (%d)\n", message, detail);
    abort();
}

uint32_t exchange(uint32_t value, uint32_t from, int line) {
    // Two slots in turn: nobody can be two shuffles ahead of a lane that still reads.
    const uint32_t turn = self->shuffles++ % 2;
    self->slots[turn] = value;
    wait(Wait::Warp, line);
    return (&threads[self->index.x - lane()])[from].slots[turn];
}

#ifdef CONDPROG_THREADS

thread_local Thread* self;

namespace {
std::unique_ptr<std::barrier<>> whole;
std::vector<std::unique_ptr<std::barrier<>>> warps;
} // namespace

void wait(Wait what, int) {
    (what == Wait::Block ? *whole : *warps[self->index.x / WARP]).arrive_and_wait();
}

void launch(const Launch& launch, void (*kernel)(const void*), const void* argument) {
    start_grid(launch, kernel, argument);
    const uint32_t count = launch.threads;
    for (uint32_t b = launch.first; b < launch.blocks; b++) {
        start_block(b);
        whole = std::make_unique<std::barrier<>>(count);
        warps.clear();
        for (uint32_t w = 0; w < count / WARP; w++) warps.push_back(std::make_unique<std::barrier<>>(WARP));
        std::vector<std::thread> running;
        for (uint32_t i = 0; i < count; i++)
            running.emplace_back([i] {
                self = &threads[i];
                kernel_(argument_);
                whole->arrive_and_drop();
                warps[i / WARP]->arrive_and_drop();
            });
        for (auto& thread : running) thread.join();
    }
}

#else

Thread* self;

namespace {

const size_t STACK = 64 << 10;

struct Stack {
    alignas(64) char bytes[STACK];
};

std::vector<std::unique_ptr<Stack>> stacks;

void thread_main();

// `resume` runs thread i until it waits; `yield` goes back to whoever resumed.
#ifdef CONDPROG_UCONTEXT

ucontext_t scheduler;
std::vector<ucontext_t> contexts;

void prepare(uint32_t i) {
    contexts.resize(threads.size());
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stacks[i]->bytes;
    contexts[i].uc_stack.ss_size = STACK;
    contexts[i].uc_link = nullptr;
    makecontext(&contexts[i], thread_main, 0);
}
void enter(uint32_t i) { swapcontext(&scheduler, &contexts[i]); }
void leave() { swapcontext(&contexts[self->index.x], &scheduler); }

#else

// void condprog_switch(void** from, void* to): pushes what a call preserves, swaps stacks, pops.
extern "C" void condprog_switch(void** from, void* to);
asm(R"(
    .text
    .globl condprog_switch
    .hidden condprog_switch
    .type condprog_switch, @function
condprog_switch:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    retq
    .size condprog_switch, . - condprog_switch
    .section .note.GNU-stack, "", @progbits
    .text
)");

void* scheduler;
std::vector<void*> contexts;

void prepare(uint32_t i) {
    contexts.resize(threads.size());
    // Stacks start at different lines of the cache, which they would share otherwise.
    void** top = (void**)(stacks[i]->bytes + STACK - 64 * (i % 64));
    *--top = nullptr; // where thread_main would return to, and the alignment that a call leaves
    *--top = (void*)thread_main;
    top -= 6;
    std::fill(top, top + 6, nullptr);
    contexts[i] = top;
}
void enter(uint32_t i) { condprog_switch(&scheduler, contexts[i]); }
void leave() { condprog_switch(&contexts[self->index.x], scheduler); }

#endif

#ifdef __SANITIZE_ADDRESS__
const void* scheduler_stack;
size_t scheduler_stack_size;

void resume(uint32_t i) {
    void* fake;
    self = &threads[i];
    __sanitizer_start_switch_fiber(&fake, stacks[i]->bytes, STACK);
    enter(i);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}
void arrived(void* fake) { __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_size); }
void yield() {
    void* fake;
    __sanitizer_start_switch_fiber(&fake, scheduler_stack, scheduler_stack_size);
    leave();
    arrived(fake);
}
#else
void resume(uint32_t i) {
    self = &threads[i];
    enter(i);
}
void arrived(void*) {}
void yield() { leave(); }
#endif

void thread_main() {
    arrived(nullptr);
    kernel_(argument_);
    wait(Wait::Done, 0);
    fail("a finished thread was resumed", (int)self->index.x);
}

// Lets the threads in `begin..end` go on if all wait for the same thing at the same line; false if none waits for it.
bool release(Wait what, uint32_t begin, uint32_t end) {
    uint32_t waiting = 0;
    for (uint32_t i = begin; i < end; i++) {
        if (threads[i].wait != what) continue;
        waiting++;
        if (threads[i].line != threads[begin].line) fail("threads wait at different lines", threads[i].line);
    }
    if (waiting == 0) return false;
    if (waiting != end - begin) fail("not every thread reaches the barrier or shuffle at line", threads[begin].line);
    for (uint32_t i = begin; i < end; i++) threads[i].wait = Wait::None;
    return true;
}

} // namespace

void wait(Wait what, int line) {
    self->wait = what;
    self->line = line;
    yield();
}

void launch(const Launch& launch, void (*kernel)(const void*), const void* argument) {
    start_grid(launch, kernel, argument);
    const uint32_t count = launch.threads;
    while (stacks.size() < count) stacks.push_back(std::make_unique<Stack>());
    std::mt19937 random(launch.seed);
    auto arrange = [&](std::vector<uint32_t>& what) {
        if (launch.order == Order::Shuffled) std::shuffle(what.begin(), what.end(), random);
    };
    auto sequence = [&](uint32_t begin, uint32_t end) {
        std::vector<uint32_t> result(end - begin);
        std::iota(result.begin(), result.end(), begin);
        if (launch.order == Order::Reverse) std::reverse(result.begin(), result.end());
        return result;
    };
    std::vector<uint32_t> of_blocks = sequence(launch.first, launch.blocks);
    std::vector<uint32_t> of_warps = sequence(0, count / WARP), of_lanes = sequence(0, WARP);
    arrange(of_blocks);
    for (uint32_t b : of_blocks) {
        start_block(b);
        for (uint32_t i = 0; i < count; i++) prepare(i);
        // A warp runs as far as it gets alone; then the block's barrier.
        do {
            arrange(of_warps);
            for (uint32_t w : of_warps) {
                do {
                    arrange(of_lanes);
                    for (uint32_t lane : of_lanes)
                        if (threads[w * WARP + lane].wait == Wait::None) resume(w * WARP + lane);
                } while (release(Wait::Warp, w * WARP, (w + 1) * WARP));
            }
        } while (release(Wait::Block, 0, count));
    }
}

#endif

} // namespace block
