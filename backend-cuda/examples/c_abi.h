/* The functions of c_abi.rs. They return 0, or another number after which condprog_cuda_error() has the text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char* condprog_cuda_error(void);
int condprog_cuda_open(uint32_t ordinal, const uint8_t* records, size_t bytes, uint64_t rows, uint32_t dim, uint32_t rate,
                       double device_share, void** decoder);
int condprog_cuda_enqueue(const void* decoder, void* stream, const void* ids, uint32_t id_bytes, uint64_t count, void* out,
                          uint32_t dtype, uint64_t* missing);
void condprog_cuda_close(void* decoder);

#ifdef __cplusplus
}
#endif
