// The environment and the name server of a target: what getenv() and getaddrinfo() say while one of these lives. The
// real ones would leak at every change, and wait for a network.
#pragma once

#include <map>
#include <string>

namespace tutti::fuzz {

class Surroundings {
  public:
    explicit Surroundings(std::map<std::string, std::string> variables);
    ~Surroundings();
    Surroundings(const Surroundings&) = delete;

    static const std::map<std::string, std::string>* current();

  private:
    const std::map<std::string, std::string> variables_;
};

}  // namespace tutti::fuzz
