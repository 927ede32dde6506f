// SPDX-License-Identifier: Apache-2.0
// Streams and events inside: emu_order.cpp, and the calls in emu_api.cpp.
#ifndef PS_CUDAEMU_ORDER_H
#define PS_CUDAEMU_ORDER_H
#include "emu.h"

struct CUstream_st {
    unsigned ctx = 0; // its place in clocks; 1: the default stream
    bool blocking = true, alive = true;
    std::deque<cudaemu::OpP> q;
    uint64_t put = 0, done = 0;
    cudaemu::Clock clock;                             // of what is queued
    std::vector<std::pair<unsigned, uint64_t>> waits; // of the next piece
    bool host_running = false, wanted = false;        // its host function
};
struct CUevent_st {
    unsigned flags = 0;
    bool recorded = false;
    unsigned ctx = 0;
    uint64_t n = 0;
    cudaemu::Clock clock;
    std::shared_ptr<double> time; // ms; -1: not yet
};

namespace cudaemu
{
cudaStream_t stream_of(cudaStream_t s); // NULL: the default one
cudaStream_t stream_new(bool blocking);
void stream_wait(cudaStream_t s, const CUevent_st *e);
void event_record(CUevent_st *e, cudaStream_t s);
bool reached(unsigned ctx, uint64_t n);
void nudge(unsigned ctx,
           uint64_t n); // somebody asks whether it is done: perhaps one step towards it
void between();         // at each call: what the seed lets run now
void order_fault(unsigned nth, cudaError_t e);
void order_called();
void order_reset(unsigned seed);
void events_count(int d);
extern thread_local bool in_host_function;
} // namespace cudaemu
#endif
