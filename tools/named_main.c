/* tutti-tools of the wheel: tutti-plan, tutti-tune and tutti-topo, which are in its libtutti.so (named.cpp). */
int tutti_program(int argc, char** argv);

int main(int argc, char** argv) {
    return tutti_program(argc, argv);
}
