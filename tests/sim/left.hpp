// Detects leaks of descriptors, mappings and threads of a process.
#pragma once

#include <map>
#include <string>

namespace sim {

class Left {
  public:
    /// Records what the process has now.
    Left();
    /// Names what has grown since `before`; empty if nothing has.
    std::string since(const Left& before) const;

  private:
    std::map<std::string, int> descriptors_, mappings_;
    int threads_ = 0;
};

}  // namespace sim
