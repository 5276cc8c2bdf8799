// Runs the threads of CUDA blocks on the host, one block after another, with every way of waiting checked:
//
//   * a barrier or a shuffle that not all of its threads reach, or at different lines, ends the program with a message;
//   * shared memory is poisoned before each block;
//   * threads run forward, in reverse or shuffled anew between waits, so that code that lacks a barrier gives
//     different results.
//
// Threads are fibers. With CONDPROG_THREADS they are threads of the system, for the thread sanitizer.
#pragma once

#include <cstdint>

namespace block {

struct Index {
    uint32_t x, y, z;
};

struct Grid {
    Index blocks, threads, block;
};

enum class Wait { None, Warp, Block, Done };
enum class Order : uint32_t { Forward, Reverse, Shuffled };

struct Thread {
    Index index;
    Wait wait;
    int line;          // where it waits
    uint32_t slots[2]; // what it gives away in even and odd shuffles
    uint32_t shuffles;
};

extern Grid grid;
#ifdef CONDPROG_THREADS
extern thread_local Thread* self;
#else
extern Thread* self;
#endif

[[noreturn]] void fail(const char* message, int detail);

inline uint32_t lane() { return self->index.x % 32; }

// Waits for the other threads of the warp or block.
void wait(Wait what, int line);

// Gives `value` to the other lanes and takes that of lane `from`.
uint32_t exchange(uint32_t value, uint32_t from, int line);

// Runs `kernel(argument)` in `blocks` blocks of `threads` threads.
void launch(uint32_t blocks, uint32_t threads, Order order, uint32_t seed, void (*kernel)(const void*),
            const void* argument);

} // namespace block
