#include "picture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <map>

namespace sim {
namespace {

constexpr int left = 80, top = 92, row = 64, box_height = 20, text_width = 6;

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
    char buffer[1024];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

std::string escaped(const std::string& plain) {
    std::string out;
    for (const char c : plain) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
}

int middle_of(int process) {
    return top + (process - 1) * row + row / 2;
}

/// The position of each time, in pixels. Two successive events are 4 to 60 pixels apart, on a logarithmic scale.
std::map<std::uint64_t, double> places_of(std::span<const Event> events) {
    std::map<std::uint64_t, double> places;
    for (const Event& e : events) places[e.begin], places[e.end];
    double at = left;
    std::uint64_t before = places.empty() ? 0 : places.begin()->first;
    for (auto& [time, place] : places) {
        const double us = static_cast<double>(time - before) / 1000;
        place = at += time == before ? 0 : std::min(60.0, 4 + 4 * std::log2(1 + us));
        before = time;
    }
    return places;
}

std::string draw(const Event& e, double begin, double end, int lift) {
    const int y = middle_of(e.process);
    const std::string words = escaped(e.text), when = text("%.6f to %.6f s", static_cast<double>(e.begin) * 1e-9,
                                                           static_cast<double>(e.end) * 1e-9);
    switch (e.what) {
        case Event::call:
            return text(
                       "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"4\" fill=\"#cfe3f7\" "
                       "stroke=\"#4a7fb5\"><title>%s: %s</title></rect>\n",
                       begin, y - box_height / 2, std::max(end - begin, 2.0), box_height, words.c_str(), when.c_str()) +
                   (end - begin < text_width * static_cast<double>(words.size())
                        ? ""
                        : text("<text x=\"%.1f\" y=\"%d\">%s</text>\n", (begin + end) / 2, y + 4, words.c_str()));
        case Event::wait:
            return text(
                "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"4\" fill=\"#bbb\"><title>waits: %s</title>"
                "</rect>\n",
                begin, y + box_height / 2 + 2, std::max(end - begin, 1.0), when.c_str());
        case Event::message:
            return text(
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#8a6\" stroke-width=\"0.7\">"
                "<title>%s: %s</title></line>\n",
                begin, y, end, middle_of(e.other), words.c_str(), when.c_str());
        case Event::mark:
            return text("<path d=\"M%.1f %d l6 10 -12 0z\" fill=\"#c33\"/>\n", begin, y - box_height / 2 - 12) +
                   text("<text x=\"%.1f\" y=\"%d\" fill=\"#c33\" text-anchor=\"start\">%s</text>\n", begin + 8,
                        y - box_height / 2 - 4 - lift, words.c_str());
    }
    return "";
}

}  // namespace

std::string picture_of(std::span<const Event> events, int ranks, const std::string& title, const std::string& verdict) {
    const std::map<std::uint64_t, double> places = places_of(events);
    const double end = places.empty() ? left : places.rbegin()->second;
    const int width = std::max(static_cast<int>(end) + 400, 900), height = top + ranks * row + 40;
    std::string out = text(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"11\" text-anchor=\"middle\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        "<text x=\"14\" y=\"22\" font-size=\"15\" text-anchor=\"start\">%s</text>\n"
        "<text x=\"14\" y=\"42\" fill=\"#c33\" text-anchor=\"start\">%s</text>\n"
        "<text x=\"14\" y=\"60\" fill=\"#555\" text-anchor=\"start\">boxes are calls, grey lines waits of more than 1 "
        "ms, green lines what the network carried; long times are drawn shorter</text>\n",
        width, height, escaped(title).substr(0, 400).c_str(), escaped(verdict).substr(0, 300).c_str());
    for (int process = 1; process <= ranks; ++process)
        out += text(
            "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/><text x=\"14\" y=\"%d\" "
            "text-anchor=\"start\">rank %d</text>\n",
            left, width - 10, middle_of(process), middle_of(process), middle_of(process) + 4, process - 1);
    double labelled = 0;
    for (const auto& [time, place] : places) {
        if (place < labelled + 90) continue;
        labelled = place;
        out += text(
            "<text x=\"%.1f\" y=\"%d\" fill=\"#888\">%.6f s</text><line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" "
            "y2=\"%d\" stroke=\"#eee\"/>\n",
            place, height - 12, static_cast<double>(time) * 1e-9, place, place, top, height - 26);
    }
    std::map<int, double> last_mark;
    for (const Event::What what : {Event::message, Event::call, Event::wait, Event::mark})  // the last on top
        for (const Event& e : events) {
            if (e.what != what || e.process < 1 || e.process > ranks) continue;
            const double begin = places.at(e.begin);
            const int lift = what == Event::mark && begin < last_mark[e.process] + 60 ? 12 : 0;
            if (what == Event::mark) last_mark[e.process] = begin;
            out += draw(e, begin, places.at(e.end), lift);
        }
    return out + "</svg>\n";
}

}  // namespace sim
