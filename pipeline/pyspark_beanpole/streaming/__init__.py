"""What `beanpole pipeline stream` keeps: an export that grows, and the statistics of it.

    DIR/events/             an export like that of `beanpole events export`: its manifest says what
                            counts, and so where the stream is
    DIR/_parts/A-B.arrow    what statistics keep of the events A <= offset < B
    DIR/tables/NAME/        the statistics, one file each

`stream` puts them together, `batches` is what Spark does, `pieces` and `tables` are the files.
"""
