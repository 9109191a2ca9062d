// What the programs themselves need of CUDA: memory, copies, streams, graphs. Exits with the library's code for CUDA
// errors if anything fails. A build without CUDA has the same functions, which find no device.
#pragma once

#include <cstddef>
#include <string>

namespace perf::cuda {

/// How many there are; 0 if there is none, and why says so then. ranks: of this process. Call it before all else that
/// concerns GPUs, because it sets what CUDA reads once.
int devices(int ranks, std::string& why);
std::string name_of(int device);

/// Makes it the calling thread's.
void use(int device);

std::byte* allocate(int device, std::size_t bytes);
void release(int device, std::byte* memory);
void upload(int device, std::byte* to, const void* from, std::size_t bytes);
void download(int device, void* to, const std::byte* from, std::size_t bytes);
void fill(int device, std::byte* memory, std::byte value, std::size_t bytes);
/// Of one copy inside its memory; nothing else may run there.
double copy_seconds(int device, std::byte* to, const std::byte* from, std::size_t bytes);

void* make_stream(int device);
void destroy_stream(int device, void* stream);
bool idle(int device, void* stream);

void begin_capture(int device, void* stream);
void* end_capture(int device, void* stream);
/// Makes what end_capture() has returned executable, and has it on the device. The thread captures nothing meanwhile.
void* upload_graph(int device, void* captured, void* stream);
void replay(int device, void* graph, void* stream);
void destroy_graph(void* graph);

}  // namespace perf::cuda
