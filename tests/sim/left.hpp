// What a process has, to be compared with what it had before: descriptors, mappings and threads.
#pragma once

#include <map>
#include <string>

namespace sim {

class Left {
  public:
    /// What is there now.
    Left();
    /// Empty, or what has become more.
    std::string since(const Left& before) const;

  private:
    std::map<std::string, int> descriptors_, mappings_;
    int threads_ = 0;
};

}  // namespace sim
